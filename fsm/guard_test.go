package fsm_test

import (
	"testing"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
)

// TestAGuardThatDoesNotHoldIsNoOutcome holds that a write may come again with another guard
// under the same id, and that only what changed something is remembered.
func TestAGuardThatDoesNotHoldIsNoOutcome(t *testing.T) {
	r := newRig(t, 1)
	index := uint64(0)
	write := func(text, expected string) command.Result {
		index++
		p := command.Put{
			Map: "m", Key: "k", Record: record(text, protocol.Timestamp{}), Stamped: true, Overwrite: true, Dedup: "id-" + text,
			Guard: command.GuardOf(record(expected, protocol.Timestamp{}).Value),
		}
		return r.apply(entry(index, ts(int64(index), 0), command.EncodePut(p)))[0][0]
	}
	for i, step := range []struct {
		text, expected string
		code           protocol.Code
		changed        bool
	}{
		{"one", "other", command.CodeChanged, false},
		{"one", "", 0, true},
		{"two", "", command.CodeChanged, false},
		{"one", "other", 0, false}, // a late repeat says what it said first
		{"two", "one", 0, true},
		{"", "one", command.CodeChanged, false},
		{"", "two", 0, true},
		{"three", "", 0, true}, // a tombstone is none
	} {
		if res := write(step.text, step.expected); res.Code != step.code || res.Changed != step.changed {
			t.Errorf("step %d: %+v, want code %d, changed %v", i, res, step.code, step.changed)
		}
	}
}
