package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
)

func write(id, value string, millis int64) Write {
	return Write{
		Client: "c", ID: id, Map: "m", Key: "k", Value: value,
		Timestamp: protocol.Timestamp{Millis: millis, NodeID: "c"}, Level: protocol.LevelReplicated,
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	accepted := Outcome{Accepted, protocol.LevelPersisted}
	for _, tc := range []struct {
		name   string
		record func(h *History)
		state  State
		want   string
	}{
		{"acknowledged and there", func(h *History) {
			h.Sent(write("1", "a", 1))
			h.Resolved("c", "1", accepted)
		}, State{"m": {"k": "a"}}, ""},
		{"acknowledged and lost", func(h *History) {
			h.Sent(write("1", "a", 1))
			h.Resolved("c", "1", accepted)
		}, State{}, "absent; lost"},
		{"acknowledged and superseded by an unknown", func(h *History) {
			h.Sent(write("1", "a", 1))
			h.Resolved("c", "1", accepted)
			h.Sent(write("2", "b", 2))
			h.Resolved("c", "2", Outcome{Kind: Unknown})
		}, State{"m": {"k": "b"}}, ""},
		{"older value won", func(h *History) {
			h.Sent(write("1", "a", 1))
			h.Resolved("c", "1", accepted)
			h.Sent(write("2", "b", 2))
			h.Resolved("c", "2", accepted)
		}, State{"m": {"k": "a"}}, "lost \"b\""},
		{"memory may be lost", func(h *History) {
			w := write("1", "a", 1)
			w.Level = protocol.LevelMemory
			h.Sent(w)
			h.Resolved("c", "1", Outcome{Accepted, protocol.LevelMemory})
		}, State{}, ""},
		{"removed", func(h *History) {
			h.Sent(write("1", "a", 1))
			h.Resolved("c", "1", accepted)
			h.Sent(write("2", "", 2))
			h.Resolved("c", "2", accepted)
		}, State{}, ""},
		{"removal lost", func(h *History) {
			h.Sent(write("1", "a", 1))
			h.Resolved("c", "1", accepted)
			h.Sent(write("2", "", 2))
			h.Resolved("c", "2", accepted)
		}, State{"m": {"k": "a"}}, "lost the removal"},
		{"refused and there", func(h *History) {
			h.Sent(write("1", "a", 1))
			h.Resolved("c", "1", Outcome{Kind: Refused})
		}, State{"m": {"k": "a"}}, "was refused"},
		{"error, then unknown", func(h *History) {
			h.Sent(write("1", "a", 1))
			h.Resolved("c", "1", Outcome{Kind: NotApplied})
			h.Sent(write("1", "a", 1))
			h.Resolved("c", "1", Outcome{Kind: Unknown})
		}, State{"m": {"k": "a"}}, ""},
		{"error and there", func(h *History) {
			h.Sent(write("1", "a", 1))
			h.Resolved("c", "1", Outcome{Kind: NotApplied})
		}, State{"m": {"k": "a"}}, "was refused"},
		{"phantom", func(*History) {}, State{"m": {"k": "a"}}, "never written"},
		{"weaker than asked", func(h *History) {
			h.Sent(write("1", "a", 1))
			h.Resolved("c", "1", Outcome{Accepted, protocol.LevelMemory})
		}, State{"m": {"k": "a"}}, "acknowledged at MEMORY"},
		{"two verdicts for one send", func(h *History) {
			h.Sent(write("1", "a", 1))
			h.Resolved("c", "1", accepted)
			h.Resolved("c", "1", accepted)
		}, State{"m": {"k": "a"}}, "more verdicts than sends"},
		{"two contents", func(h *History) {
			h.Sent(write("1", "a", 1))
			h.Sent(write("1", "b", 1))
		}, State{"m": {"k": "a"}}, "two contents"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := NewHistory(protocol.LevelPersisted)
			tc.record(h)
			problems := Check(h, map[string]State{"n1": tc.state})
			if tc.want == "" {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Contains(t, problems[0], tc.want)
		})
	}
}

func TestCheckFindsNodesThatDiffer(t *testing.T) {
	h := NewHistory(protocol.LevelPersisted)
	h.Sent(write("1", "a", 1))
	h.Resolved("c", "1", Outcome{Kind: Unknown})
	problems := Check(h, map[string]State{"n1": {"m": {"k": "a"}}, "n2": {}})
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], "n1 and n2 differ")
}

func TestRegistersFollowRealTime(t *testing.T) {
	r := NewRegisters()
	r.Wrote(1, "k", "a", 1, 2)
	r.Wrote(2, "k", "b", 3, -1)
	r.Read(3, "k", "a", 4, 5)
	r.Read(3, "k", "b", 6, 7)
	require.NoError(t, r.Check(10*time.Second))
	r.Read(3, "k", "a", 8, 9)
	require.ErrorContains(t, r.Check(10*time.Second), "not shown linearizable")
}
