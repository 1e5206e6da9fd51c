package partitions

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/query"
	"github.com/quorate/quorate/partitions/mirror"
	"github.com/quorate/quorate/raftnode"
)

// FuzzPeerReplies holds that whatever a peer answers is taken for an answer or for an
// unknown outcome.
func FuzzPeerReplies(f *testing.F) {
	f.Add([]byte{})
	f.Add(append([]byte{forwardDone}, command.EncodeResults([]command.Result{{Index: 7, Changed: true}, {Code: 409, Reason: "r"}})...))
	f.Add([]byte{forwardNotLeader, 'n', '1'})
	f.Add([]byte{forwardBusy})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3})
	f.Fuzz(func(t *testing.T, reply []byte) {
		results, err := decodeForwardReply(3, reply)
		var notLeader *raftnode.NotLeaderError
		if err == nil {
			require.Equal(t, byte(forwardDone), reply[0])
			require.NotNil(t, results)
		} else if !errors.Is(err, raftnode.ErrUnknown) && !errors.Is(err, raftnode.ErrBusy) && !errors.As(err, &notLeader) {
			t.Fatalf("%x: %v", reply, err)
		}
	})
}

// FuzzDecodeProgress holds that what a leader answers about the database is refused, or
// names no more keys than it has bytes for and is what a leader would write again.
func FuzzDecodeProgress(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{progressNotLeader})
	f.Add([]byte{progressDone, 1})
	f.Add(encodeProgress(mirror.Progress{Index: 1 << 40}))
	f.Add(encodeProgress(mirror.Progress{Index: 7, Rejected: []fsm.Name{{Map: "m", Key: "k"}, {}, {Key: "\xff"}}}))
	f.Add(encodeProgress(mirror.Progress{Index: 7, Rejected: make([]fsm.Name, maxRejected+1)}))
	f.Add([]byte{progressDone, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 'm'})
	f.Fuzz(func(t *testing.T, reply []byte) {
		p, err := decodeProgress(3, reply)
		var notLeader *raftnode.NotLeaderError
		if err != nil {
			if !errors.Is(err, codec.ErrMalformed) && !errors.As(err, &notLeader) {
				t.Fatalf("%x: %v", reply, err)
			}
			require.Zero(t, p)
			return
		}
		if 2*len(p.rejected) > len(reply) {
			t.Fatalf("%d keys in %d bytes", len(p.rejected), len(reply))
		}
		rejected := p.rejected
		if p.partial {
			rejected = make([]fsm.Name, maxRejected+1)
		}
		again, err := decodeProgress(3, encodeProgress(mirror.Progress{Index: p.index, Rejected: rejected}))
		require.NoError(t, err)
		require.Equal(t, p.index, again.index)
		require.Equal(t, p.partial || len(p.rejected) > maxRejected, again.partial)
		if !again.partial {
			require.Equal(t, p.rejected, again.rejected)
		}
		_, err = decodeProgress(3, append(slices.Clone(reply), 0))
		require.ErrorIs(t, err, codec.ErrMalformed, "with a byte left over")
	})
}

func TestKeysThatAreOnlyAnnouncedTakeNoMemory(t *testing.T) {
	reply := append(encodeProgress(mirror.Progress{Index: 7})[:10], 0xff, 0xff, 0x3f, 1, 'm')
	allocs := math.Inf(1)
	for range 20 { // The least, because goroutines of other tests may allocate meanwhile.
		allocs = min(allocs, testing.AllocsPerRun(1, func() {
			_, err := decodeProgress(3, reply)
			require.ErrorIs(t, err, codec.ErrMalformed)
		}))
	}
	require.Less(t, allocs, 20.0, "the list does not grow")
}

// FuzzDecodePlan holds that the plan of a holder is refused, or counts within bounds and is
// one that a holder would write again.
func FuzzDecodePlan(f *testing.F) {
	f.Add([]byte{})
	for _, p := range []Plan{
		{},
		{Scanned: 1, Candidates: 240, Matched: 12},
		{Index: planIndexes[1], Scanned: 1, Indexed: 2, Keyed: 3, Candidates: 400, Matched: 50},
		{Index: IndexDefinition{MapName: "\xff", Attribute: string(make([]byte, 200))}, Indexed: 1 << 40},
	} {
		f.Add(p.append(nil))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePlan(b)
		if err != nil {
			require.ErrorIs(t, err, codec.ErrMalformed)
			return
		}
		for _, n := range []int{p.Scanned, p.Indexed, p.Keyed, p.Candidates, p.Matched} {
			if n < 0 || n > 1<<40 {
				t.Fatalf("%x is %+v", b, p)
			}
		}
		if len(p.Index.MapName)+len(p.Index.Attribute)+len(p.Index.Type) > len(b) {
			t.Fatalf("%d bytes are %+v", len(b), p)
		}
		again, err := decodePlan(p.append(nil))
		require.NoError(t, err)
		require.Equal(t, p, again)
		_, err = decodePlan(append(slices.Clone(b), 0))
		require.ErrorIs(t, err, codec.ErrMalformed, "with a byte left over")
	})
}

// FuzzDecodeAsk holds that what a node asks another one for stays within its bounds.
func FuzzDecodeAsk(f *testing.F) {
	q, err := query.Compile([]byte{0x80}, query.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte{0, 10, 100, 0}, q.AppendSource(nil)...))
	f.Add([]byte{askRecords | askPlan, 0xff, 0xff, 3, 0xff, 0xff, 0xff, 0xff, 0x7f, 2, 1, 2})
	f.Fuzz(func(t *testing.T, request []byte) {
		ask, err := decodeAsk("m", request, 1000)
		if err == nil && (ask.Rows < 0 || ask.Rows > pageRecords+MaxQueryRows || ask.Bytes < 0 || ask.Bytes > 1000 || ask.Query == nil) {
			t.Fatalf("%x is %+v", request, ask)
		}
	})
}
