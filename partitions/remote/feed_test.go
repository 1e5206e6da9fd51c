package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol/merkle"
)

// TestAReadShowsWhatWasDelivered has the node that brings the changes fail a read: what the
// next one shows contains every change that was delivered, since whoever begins to follow
// after that hears nothing more of it.
func TestAReadShowsWhatWasDelivered(t *testing.T) {
	const begun, changed = 50, 100
	delivered := make(chan uint64, 1)
	next := make(chan []byte, 1)
	change := fsm.Change{Index: changed, Section: storage.SectionRecords, Map: "m", Key: "k"}
	var failing sync.Map
	var atLeast uint64
	c := NewClient(DefaultConfig(), Deps{
		Logger:   hclog.NewNullLogger(),
		Holders:  func(uint32) []string { return []string{"a", "b"} },
		Held:     func(uint32) bool { return false },
		Followed: func(Subject) bool { return true },
		Deliver: func(c *fsm.Changes) {
			if !c.Reset {
				delivered <- c.Index
			}
		},
		Follow: func(ctx context.Context, node string, body []byte) ([]byte, error) {
			if body[0] == opAdd {
				return binary.AppendUvarint([]byte{replyDone}, begun), nil
			}
			select {
			case reply := <-next:
				return reply, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		Read: func(_ context.Context, node string, body []byte) ([]byte, error) {
			if _, fails := failing.Load(node); fails {
				return nil, errors.New("busy")
			}
			r := codec.NewReader(body)
			atLeast = takeHeader(&r).atLeast
			return new(merkle.Leaves).Append(binary.AppendUvarint([]byte{replyDone}, atLeast)), nil
		},
	})
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	read := func() uint64 {
		_, err := c.NewReader(ctx, 1, 0, new(sync.Mutex)).AddLeaves("m", merkle.Records, new(merkle.Leaves))
		require.NoError(t, err)
		return atLeast
	}
	require.EqualValues(t, begun, read())
	next <- appendChange([]byte{replyDone}, &change)
	require.EqualValues(t, changed, <-delivered)
	failing.Store("a", true)
	require.EqualValues(t, changed, read())
}
