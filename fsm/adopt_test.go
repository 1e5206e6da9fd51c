package fsm_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
)

// changedKeys walks over all keys that changed after since, a few at a time.
func (r *rig) changedKeys(since uint64, limit int) (list []string) {
	r.t.Helper()
	for place := (fsm.Place{}); !place.End; {
		names, next, err := r.machine.ChangedKeys(since, place, limit)
		r.must(err)
		if len(names) > limit {
			r.t.Errorf("%d keys, at most %d asked for", len(names), limit)
		}
		for _, n := range names {
			list = append(list, n.Map+"/"+n.Key)
		}
		place = next
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func TestChangedKeysAreThoseOfLaterEntries(t *testing.T) {
	r := newRig(t, 1, batchSize(3))
	var all, later []string
	for i := range uint64(300) {
		name, key := fmt.Sprint("m", i%3), fmt.Sprint("k", i)
		r.apply(entry(i+1, ts(int64(i), 0), put(name, key, "v", ts(int64(i), 0))))
		if i == 100 || i == 200 {
			r.flush()
		}
		all = append(all, name+"/"+key)
		if i >= 250 {
			later = append(later, name+"/"+key)
		}
	}
	r.apply(entry(301, ts(301, 0), orAdd("sets", "s", "v", ts(301, 0)), put("m1", "k1", "", ts(302, 0))))
	all, later = append(all, "sets/s"), append(later, "sets/s", "m1/k1")
	slices.Sort(all)
	slices.Sort(later)
	for _, limit := range []int{1, 7, 1000} {
		if got := r.changedKeys(0, limit); !slices.Equal(got, all) {
			t.Errorf("%d keys of %d, %d at a time", len(got), len(all), limit)
		}
		if got := r.changedKeys(250, limit); !slices.Equal(got, later) {
			t.Errorf("changed after 250: %q, want %q", got, later)
		}
	}
	// The store holds what was flushed, up to the entry 201.
	if got := r.crash().changedKeys(200, 5); !slices.Equal(got, []string{"m2/k200"}) {
		t.Errorf("changed after 200, once reopened at the flush: %q", got)
	}
}

func TestAnItemIsEverythingUnderAKey(t *testing.T) {
	r := newRig(t, 1)
	look := func() fsm.Item {
		t.Helper()
		it, _, err := r.machine.Item("m", "k")
		r.must(err)
		return it
	}
	if it := look(); it.Exists() || it.Record != nil {
		t.Errorf("nothing is stored: %+v", it)
	}
	r.apply(entry(1, ts(1, 0), put("m", "k", "v", ts(1, 0))), entry(2, ts(2, 0), orAdd("m", "k", "x", ts(2, 0))))
	if it := look(); it.Index != 2 || it.Record == nil || len(it.Set.Records) != 1 || it.RemovedMillis != 0 {
		t.Errorf("a record and a set: %+v", it)
	}
	r.apply(entry(3, ts(30, 0), put("m", "k", "", ts(3, 0))))
	if it := look(); it.Index != 3 || it.RemovedMillis != 0 {
		t.Errorf("a tombstone and a set: %+v", it)
	}
	r.apply(entry(4, ts(40, 0), orRemove("m", "k", ts(2, 0).String())))
	if it := look(); it.Index != 4 || it.RemovedMillis != 40 || len(it.Set.Tombstones) != 1 {
		t.Errorf("nothing live: %+v", it)
	}
	r.apply(entry(5, ts(50, 0), r.collect(45, 10)))
	if it := look(); it.Exists() {
		t.Errorf("all is collected: %+v", it)
	}
}

func TestAnAdoptionRaisesTokensAndIsKept(t *testing.T) {
	r := newRig(t, 1)
	r.apply(entry(1, ts(1, 0), command.EncodeAdopt(command.Adopt{Token: 70})))
	if r.machine.Adopted() || r.machine.Fence() != 70 {
		t.Fatalf("begun: adopted %v, token %d", r.machine.Adopted(), r.machine.Fence())
	}
	r.apply(entry(2, ts(2, 0), command.EncodeAdopt(command.Adopt{Token: 7, Complete: true})))
	r.flush()
	snapshot := r.snapshot()
	for _, again := range []*rig{r.crash(), restored(t, 1, snapshot)} {
		if !again.machine.Adopted() || again.machine.Fence() != 70 {
			t.Errorf("complete: adopted %v, token %d", again.machine.Adopted(), again.machine.Fence())
		}
	}
}
