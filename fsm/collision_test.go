package fsm_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
	"github.com/quorate/quorate/protocol/merkle/merkletest"
)

// lookStore notes how much is read at most before a reader is closed.
type lookStore struct {
	storage.Store
	most int
}

type lookReader struct {
	storage.Reader
	store *lookStore
	reads int
}

func (s *lookStore) NewReader() (storage.Reader, error) {
	r, err := s.Store.NewReader()
	return &lookReader{Reader: r, store: s}, err
}

func (r *lookReader) Scan(group uint32, section storage.Section, prefix, from string, fn func(string, []byte) bool) error {
	return r.Reader.Scan(group, section, prefix, from, func(key string, value []byte) bool {
		r.reads++
		r.store.most = max(r.store.most, r.reads)
		return fn(key, value)
	})
}

func tagged(key, tag string) command.Raw {
	return orAddRecord("s", key, protocol.ORRecord{Value: []byte{1}, Timestamp: ts(5, 0), Tag: tag})
}

// lookBound is the work of a look, and what is read to see that more follows.
const lookBound = 4096 + fsm.MaxTags + 2

// TestALeafThatHoldsAllOfAMapIsReadInTurns has a client choose keys of one hash: reading
// their leaf must not keep writes from being applied until its end, also if little of it is
// asked for.
func TestALeafThatHoldsAllOfAMapIsReadInTurns(t *testing.T) {
	store := &lookStore{Store: memory.New(memory.Config{})}
	r := openRig(t, 1, store, cacheBytes(0))
	keys := merkletest.Keys(9000)
	for i, some := range slices.Collect(slices.Chunk(keys, 1000)) {
		var puts, adds []command.Raw
		for _, key := range some {
			puts = append(puts, put("m", key, "v", ts(5, 0)))
			adds = append(adds, tagged(key, "t-"+key))
		}
		r.apply(entry(uint64(i+1), ts(int64(i), 0), append(puts, adds...)...))
	}
	r.flush()
	dirty := keys[4000]
	r.apply(entry(10, ts(9, 0), put("m", dirty, "w", ts(6, 0))))
	slices.Sort(keys)

	bucket := merkle.BucketOf(keys[0])
	var shown []string
	for _, rec := range r.leaf("m", bucket) {
		shown = append(shown, rec.Key)
	}
	if !slices.Equal(shown, keys) {
		t.Errorf("the leaf has %d records, want %d", len(shown), len(keys))
	}
	if delta, _ := r.recordsSince("m", 9); len(delta) != 1 || delta[0].Key != dirty {
		t.Errorf("the delta has %d records, want the changed one", len(delta))
	}
	shown = shown[:0]
	for _, e := range r.sets("s", bucket) {
		shown = append(shown, e.Key)
	}
	if !slices.Equal(shown, keys) {
		t.Errorf("the leaf of sets has %d keys, want %d", len(shown), len(keys))
	}
	if store.most == 0 || store.most > lookBound {
		t.Errorf("%d items were read in one turn, want %d at most", store.most, lookBound)
	}
}

// TestASetOfManyRemovedTagsIsReadInTurns is the same for what one key can hold.
func TestASetOfManyRemovedTagsIsReadInTurns(t *testing.T) {
	r := newRig(t, 1)
	const tags = 12_000
	for i := range uint64(12) {
		var cmds []command.Raw
		for j := range uint64(1000) {
			tag := fmt.Sprintf("t%05d", 1000*i+j)
			cmds = append(cmds, tagged("k", tag), orRemove("s", "k", tag))
		}
		r.apply(entry(i+1, ts(int64(i), 0), cmds...))
	}
	seen := map[string]bool{}
	for _, e := range r.sets("s", merkle.BucketOf("k")) {
		for _, tag := range e.Tombstones {
			if seen[tag] {
				t.Fatalf("%s comes twice", tag)
			}
			seen[tag] = true
		}
	}
	if len(seen) != tags {
		t.Errorf("%d removed tags, want %d", len(seen), tags)
	}
}

// TestTheDigestTellsApartWhatHashTreesDoNot has two replicas differ by changes that a client
// made so that no hash of a tree shows them.
func TestTheDigestTellsApartWhatHashTreesDoNot(t *testing.T) {
	keys := merkletest.Keys(2)
	was, other := ts(5, 0), ts(6, 0)
	item := func(key string, at protocol.Timestamp) uint32 { return merkle.LWWItem(key, at) }
	again := merkletest.Stamp(keys[0], 7, item(keys[0], was))
	next := ts(8, 0)
	back := merkletest.Cancelling(keys[1], 9, item(keys[1], other), item(keys[0], was), item(keys[0], next))
	for name, changes := range map[string][]command.Raw{
		"one change with the item of before":     {put("m", keys[0], "other", again)},
		"two changes that take each other back":  {put("m", keys[0], "other", next), put("m", keys[1], "other", back)},
		"a record whose item counts for nothing": {put("m", "only here", "v", merkletest.Stamp("only here", 7, 0))},
	} {
		t.Run(name, func(t *testing.T) {
			one, two := newRig(t, 1), newRig(t, 1)
			for _, r := range []*rig{one, two} {
				r.apply(entry(1, ts(1, 0), put("m", keys[0], "v", was), put("m", keys[1], "v", other)))
			}
			one.apply(entry(2, ts(2, 0), changes...))
			two.apply(entry(2, ts(2, 0), put("m", keys[0], "v", was))) // changes nothing
			if a, b := one.leaves("m", merkle.Records), two.leaves("m", merkle.Records); a.Root() != b.Root() {
				t.Fatalf("roots %d and %d: the attack does not work", a.Root(), b.Root())
			}
			_, a := one.machine.Digest()
			_, b := two.machine.Digest()
			if a == b {
				t.Error("the digests are equal")
			}
			if delta, _ := one.recordsSince("m", 1); len(delta) != len(changes) {
				t.Errorf("a delta has %d records, want %d", len(delta), len(changes))
			}
		})
	}
}
