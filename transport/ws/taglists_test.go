package ws

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// neighbours are n keys of one leaf.
func neighbours(n int) []string {
	byBucket := map[uint16][]string{}
	for i := 0; ; i++ {
		key := fmt.Sprint("key", i)
		bucket := merkle.BucketOf(key)
		if byBucket[bucket] = append(byBucket[bucket], key); len(byBucket[bucket]) == n {
			return byBucket[bucket]
		}
	}
}

// Clients answer each frame of a leaf with its keys, and repeat all removed tags with each.
func TestAFrameOfALeafHasNoMoreKeysThanItsAnswerHasRoomFor(t *testing.T) {
	f := start(t)
	c := f.dial()
	keys := neighbours(6)
	for i, key := range keys {
		c.send(batch(orAdd(fmt.Sprint(i+1), "labels", key, fmt.Sprint("tag", i))))
		expect[*protocol.OpAck](c)
	}
	c.send(&protocol.ORMapSyncInit{MapName: "labels", BucketHashes: map[string]uint32{}})
	expect[*protocol.ORMapSyncRespRoot](c)
	frames := func() (sizes []int) {
		c.send(&protocol.ORMapMerkleReqBucket{MapName: "labels", Path: merkle.Path(merkle.BucketOf(keys[0]))})
		for got := 0; got < len(keys); got += sizes[len(sizes)-1] {
			sizes = append(sizes, len(expect[*protocol.ORMapSyncRespLeaf](c).Entries))
		}
		return sizes
	}
	require.Equal(t, []int{4, 2}, frames(), "what the client has removed is not known")
	removed := make([]string, 600)
	for i := range removed {
		removed[i] = fmt.Sprint(strings.Repeat("x", 490), i)
	}
	push := func(tags []string) {
		rec := *orRecord("tag0")
		c.send(&protocol.ORMapPushDiff{MapName: "labels", Entries: []protocol.OREntry{{Key: keys[0], Records: []protocol.ORRecord{rec}, Tombstones: tags}}})
	}
	push(removed)
	eventually(t, func() bool { return slices.Equal([]int{3, 3}, frames()) }, "frames for a list of 300 KB")
	push(removed[:1])
	eventually(t, func() bool { return slices.Equal([]int{6}, frames()) }, "a frame for a short list")
}

func TestRemovedTagsThatWereTakenAreNotJudgedAgain(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(&protocol.ORMapSyncInit{MapName: "labels", BucketHashes: map[string]uint32{}})
	expect[*protocol.ORMapSyncRespRoot](c)
	judged := func(tags ...string) (n int) {
		before := 0
		f.backend.locked(func() { before = len(f.backend.judged) })
		c.send(&protocol.ORMapPushDiff{MapName: "labels", Entries: []protocol.OREntry{{Key: "k", Records: []protocol.ORRecord{*orRecord("live")}, Tombstones: tags}}})
		eventually(t, func() (done bool) {
			f.backend.locked(func() {
				if done = len(f.backend.judged) > before; done {
					n = f.backend.judged[before]
				}
			})
			return done
		}, "the push")
		return n
	}
	require.Equal(t, 3, judged("a", "b", "c"))
	eventually(t, func() bool { return judged("a", "b", "c") == 0 }, "a list that was taken")
	require.Equal(t, 1, judged("a", "b", "c", "d"), "a list grows at its end")
	require.Equal(t, 3, judged("b", "a", "c"), "another list")
	require.Equal(t, 2, judged("a", "b"), "a shorter list")
}
