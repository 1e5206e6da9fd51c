package fsm_test

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
)

func TestAnIdIsForOneAddition(t *testing.T) {
	r := newRig(t, 1)
	r.apply(entry(1, ts(1, 0), add("a", 1, "r")))
	r.flush()
	snapshot := r.snapshot()
	for name, again := range map[string]*rig{"restart": r.crash(), "snapshot": restored(t, 1, snapshot)} {
		res := again.apply(entry(2, ts(2, 0), add("b", 5, "r"), add("a", 2, "r"), add("a", 1, "r")))[0]
		for i, want := range []protocol.Code{protocol.CodeStale, protocol.CodeStale, 0} {
			if res[i].Code != want {
				t.Errorf("%s: addition %d: %+v, want code %d", name, i, res[i], want)
			}
		}
		if cells, _, err := again.machine.Counter("b"); err != nil || len(cells) != 0 {
			t.Errorf("%s: counter b: %v %v", name, cells, err)
		}
	}
}

// TestAdditionsAreRememberedByAge holds that the outcome of an addition stays for a time
// however many come, up to a bound, and that a window of older ones shrinks.
func TestAdditionsAreRememberedByAge(t *testing.T) {
	r, index := newRig(t, 1, batchSize(1<<20), capacity(1<<20)), uint64(0)
	fill := func(prefix string, n int, millis int64) {
		cmds := make([]command.Raw, n)
		for i := range cmds {
			cmds[i] = add("c", 1, fmt.Sprint(prefix, i))
		}
		index++
		r.apply(entry(index, ts(millis, 0), cmds...))
	}
	known := func(id string, millis int64) bool {
		index++
		res := r.apply(entry(index, ts(millis, 0), add("c", 1, id)))[0][0]
		return !res.Changed
	}
	const start = 1000
	fill("a", 3*fsm.WindowSize, start)
	if !known("a0", start+fsm.AdditionMillis) {
		t.Error("an addition is forgotten before its time")
	}
	fill("b", 3*fsm.WindowSize, start+fsm.AdditionMillis+1)
	if known("a0", start+fsm.AdditionMillis+1) {
		t.Error("an addition is remembered beyond its time")
	}
	if !known(fmt.Sprint("b", 0), start+fsm.AdditionMillis+1) {
		t.Error("an addition is forgotten before its time")
	}
	fill("c", fsm.MaxAdditions, start+fsm.AdditionMillis+2)
	if known("b1", start+fsm.AdditionMillis+2) {
		t.Error("the window has no bound")
	}
}
