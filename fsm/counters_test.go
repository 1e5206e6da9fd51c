package fsm_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage/memory"
)

// counterView is what a client knows of a counter: by writer the greatest total.
type counterView map[string]float64

// merge takes the state of a server in, and returns the value.
func (v counterView) merge(cells []command.Cell) (value float64) {
	for _, c := range cells {
		v[c.Writer] = max(v[c.Writer], c.Positive)
	}
	for _, total := range v {
		value += total
	}
	return value
}

func (v counterView) state(life string) command.Raw {
	m := command.CounterMerge{Life: life, Name: "likes"}
	for _, writer := range slices.Sorted(maps.Keys(v)) {
		m.Cells = append(m.Cells, command.Cell{Writer: writer, Positive: v[writer]})
	}
	return command.EncodeCounterMerge(m)
}

func addIn(life string, delta float64, dedup string) command.Raw {
	return command.EncodeCounterAdd(command.CounterAdd{Life: life, Name: "likes", Delta: delta, Dedup: dedup})
}

// next applies commands behind what the machine has, and returns the counter.
func (r *rig) next(cmds ...command.Raw) []command.Cell {
	r.t.Helper()
	index, _ := r.machine.Applied()
	for _, res := range r.apply(entry(index+1, ts(int64(index)+1, 0), cmds...))[0] {
		if res.Code != 0 {
			r.t.Errorf("refused: %+v", res)
		}
	}
	cells, _, err := r.machine.Counter("likes")
	r.must(err)
	return cells
}

// A client that knows the end of a life sees the additions of the next one, which began
// with less, and brings back what that lacks.
func TestACounterGoesBackForNobodyWhenALifeBeginsWithLess(t *testing.T) {
	old := newRig(t, 1)
	client := counterView{"own": 1}
	client.merge(old.next(addIn("a", 10, "1"), client.state("a")))
	old.flush()
	saved := old.snapshot()
	if got := client.merge(old.next(addIn("a", 5, "2"))); got != 16 {
		t.Fatalf("the client sees %v before the restore", got)
	}
	store := memory.New(memory.Config{})
	_, err := fsm.Transplant(store, 1, bytes.NewReader(saved), transplantConfiguration)
	old.must(err)
	r := openRig(t, 1, store)
	cells := r.next(addIn("b", 2, "3"))
	if got := command.Total(cells); got != 13 {
		t.Errorf("the server counts %v without the client", got)
	}
	if got := client.merge(cells); got != 18 {
		t.Errorf("the client sees %v, so that additions are hidden from it", got)
	}
	if got := command.Total(r.next(client.state("b"))); got != 18 {
		t.Errorf("the server counts %v once it heard of the client", got)
	}
	// Nobody but the additions of the present life raises their cell.
	if got := command.Total(r.next(counterView{"$sys/adds/b": 100}.state("b"))); got != 18 {
		t.Errorf("a client raised the additions of the present life: %v", got)
	}
	if got := client.merge(r.next(addIn("b", 1, "4"))); got != 19 {
		t.Errorf("the client sees %v after another addition", got)
	}
	want := []command.Cell{{Writer: "$sys/adds/a", Positive: 15}, {Writer: "$sys/adds/b", Positive: 3}, {Writer: "own", Positive: 1}}
	if diff := cmp.Diff(want, r.next(command.EncodeRead())); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}
