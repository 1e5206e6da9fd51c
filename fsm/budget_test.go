package fsm_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/protocol"
)

func budgeted(b *fsm.Budget) option {
	return func(_ *writebehind.Config, c *fsm.Config) { c.Budget = b }
}

func fill(r *rig, from, to uint64) {
	for i := from; i < to; i++ {
		r.apply(entry(i+1, ts(int64(i), 0), put("m", fmt.Sprint("key-", i), strings.Repeat("x", 30), ts(int64(i), 0))))
	}
}

func TestATickEvictsFromTheHighToTheLowWaterMark(t *testing.T) {
	b, err := fsm.OpenBudget(fsm.BudgetConfig{Ceiling: 1 << 20, High: 100_000, Low: 50_000}, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, 1, budgeted(b))
	other := newRig(t, 2, budgeted(b))
	fill(r, 0, 500)
	fill(other, 0, 500)
	used, dirty := b.Used()
	if used != dirty || used <= 100_000 {
		t.Fatalf("%d bytes, of which %d dirty: want all dirty, above the high water mark", used, dirty)
	}
	if n := b.Trim(); n != 0 {
		t.Errorf("%d dirty items were evicted", n)
	}
	r.flush()
	other.flush()
	if used, dirty = b.Used(); dirty != 0 || used <= 100_000 {
		t.Fatalf("%d bytes, of which %d dirty, after the flush", used, dirty)
	}
	if n := b.Trim(); n == 0 {
		t.Error("nothing was evicted above the high water mark")
	}
	if used, _ = b.Used(); used > 50_000 || used < 40_000 {
		t.Errorf("%d bytes are left, want little below the low water mark", used)
	}
	if n := b.Trim(); n != 0 {
		t.Errorf("%d items were evicted below the high water mark", n)
	}
	for _, r := range []*rig{r, other} {
		n := 0
		_, err := r.machine.Scan("m", "", func(string, protocol.Record) bool { n++; return true })
		r.must(err)
		if _, found, err := r.machine.Get("m", "key-0"); n != 500 || !found || err != nil {
			t.Errorf("group %d: %d of 500 records are seen, key-0: %v, %v", r.group, n, found, err)
		}
		r.must(r.machine.Close())
	}
	if used, _ = b.Used(); used != 0 {
		t.Errorf("%d bytes are counted after the machines closed", used)
	}
}

func TestTheCeilingHoldsBetweenTicks(t *testing.T) {
	b := fsm.NewBudget(60_000)
	r := newRig(t, 1, budgeted(b))
	for i := range uint64(20) {
		fill(r, 50*i, 50*(i+1))
		r.flush()
		if used, _ := b.Used(); used > 60_000 {
			t.Fatalf("%d bytes in memory", used)
		}
	}
	if used, _ := b.Used(); used < 40_000 {
		t.Errorf("%d bytes in memory, though more were written", used)
	}
}

// TestTheEstimateCoversWhatItemsTake holds the estimate of an item's bytes against the
// heap: a ceiling that is kept in estimates alone would be none.
func TestTheEstimateCoversWhatItemsTake(t *testing.T) {
	const records = 20_000
	heap := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	store := &discard{memory.New(memory.Config{})}
	b := fsm.NewBudget(1 << 30)
	r := openRig(t, 1, store, budgeted(b), capacity(4*records))
	before := heap()
	fill(r, 0, records)
	r.changes = nil
	r.flush()
	used, dirty := b.Used()
	if dirty != 0 {
		t.Fatalf("%d bytes are dirty", dirty)
	}
	if grown := heap() - before; grown > int64(used)*5/4 || grown < int64(used)/2 {
		t.Errorf("the heap grew by %d bytes for an estimate of %d", grown, used)
	}
	runtime.KeepAlive(r)
}

// discard takes writes without keeping them.
type discard struct{ storage.Store }

func (discard) Write([]storage.Batch) error { return nil }
