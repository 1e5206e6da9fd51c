package partitions

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/query"
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
		_, _ = decodeProgress(3, reply) // must not panic
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
