package fsm_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

func TestCollectingDropsOldTombstonesAndNothingElse(t *testing.T) {
	r := newRig(t, 1)
	r.apply(
		entry(1, ts(10, 0), put("m", "live", "v", ts(1, 0)), put("m", "old", "", ts(2, 0)), put("m", "revived", "", ts(2, 0))),
		entry(2, ts(20, 0), put("m", "revived", "v", ts(5, 0))),
		entry(3, ts(30, 0), orAdd("s", "a", "x", ts(1, 1)), orAdd("s", "b", "y", ts(1, 2)), orRemove("s", "a", ts(1, 1).String())),
		entry(4, ts(40, 0), orRemove("s", "b", ts(1, 2).String()), orRemoveHomeless("s", "stray"), put("m", "new", "", ts(3, 0))),
	)
	r.flush()
	r.apply(entry(5, ts(50, 0), r.collect(30, 100)))
	for key, want := range map[string]bool{"live": true, "old": false, "revived": true, "new": true} {
		if _, found, err := r.machine.Get("m", key); err != nil || found != want {
			t.Errorf("record %s is there: %v, %v, want %v", key, found, err, want)
		}
	}
	if state, err := r.machine.Tag("s", ts(1, 1).String()); err != nil || state != fsm.TagUnknown {
		t.Errorf("the old tag is known: %v", err)
	}
	if got := r.buckets("s", merkle.Sets); !slices.Equal(got, []uint16{merkle.BucketOf("b")}) {
		t.Errorf("buckets of the set %v, want that of the newer removal alone", got)
	}
	if h := r.machine.Horizon(); h != (fsm.Horizon{ClosedMillis: 50, PrunedMillis: 30, CollectedMillis: 30}) {
		t.Errorf("horizon %+v", h)
	}
	r.apply(entry(6, ts(60, 0), r.collect(1000, 100)))
	if got := r.buckets("s", merkle.Sets); len(got) > 0 {
		t.Errorf("buckets of the set %v after everything was collected", got)
	}
	if graves, err := r.machine.Graves(1<<60, 10); err != nil || len(graves) > 0 {
		t.Errorf("tombstones %q left: %v", graves, err)
	}
}

func TestACollectionThatComesLateSparesWhatIsNoTombstoneAnyMore(t *testing.T) {
	r := newRig(t, 1)
	r.apply(entry(1, ts(10, 0), put("m", "k", "", ts(1, 0))))
	late := r.collect(100, 10)
	r.apply(entry(2, ts(20, 0), put("m", "k", "v", ts(2, 0))))
	r.apply(entry(3, ts(30, 0), late, late, command.EncodeCollect(command.Collect{Graves: []string{"", "no grave"}})))
	if _, found, err := r.machine.Get("m", "k"); err != nil || !found {
		t.Errorf("the revived record is there: %v, %v", found, err)
	}
	if root := r.leaves("m", merkle.Records).Root(); root == 0 {
		t.Error("the tree lost the revived record")
	}
}

// TestARepeatBringsNothingBackThatIsForgotten sends writes again, whose acknowledgement
// was lost, after others deleted what they wrote and the tombstones are collected.
func TestARepeatBringsNothingBackThatIsForgotten(t *testing.T) {
	r := newRig(t, 1)
	write := []command.Raw{put("m", "k", "v", ts(10, 0)), orAdd("s", "k", "v", ts(10, 0))}
	r.apply(entry(1, ts(10, 0), write...))
	r.apply(entry(2, ts(20, 0), put("m", "k", "", ts(20, 0)), orRemove("s", "k", ts(10, 0).String())))
	r.apply(entry(3, ts(30, 0), r.collect(25, 10)))
	disguised := protocol.ORRecord{Tag: ts(10, 0).String(), Timestamp: ts(40, 0), Value: []byte{1}}
	again := append(slices.Clone(write), orAddRecord("s", "k", disguised))
	for i, res := range r.apply(entry(4, ts(40, 0), again...))[0] {
		if res.Code != protocol.CodeStale || res.Changed {
			t.Errorf("command %d again: %+v", i, res)
		}
	}
	if _, found, err := r.machine.Get("m", "k"); err != nil || found {
		t.Errorf("the record is back: %v", err)
	}
	if got := r.buckets("s", merkle.Sets); len(got) > 0 {
		t.Errorf("the tag is back: %v", got)
	}
	newer := r.apply(entry(5, ts(50, 0), put("m", "k", "v", ts(21, 0)), orAdd("s", "k", "v", ts(21, 0)), put("m", "gone", "", ts(1, 0))))[0]
	for i, res := range newer {
		if res.Code != 0 || !res.Changed {
			t.Errorf("newer write %d: %+v", i, res)
		}
	}
}

// TestTombstonesReachAPlateau deletes as much as it writes for a long time, collecting
// what is old, and compares what is stored.
func TestTombstonesReachAPlateau(t *testing.T) {
	r := newRig(t, 1)
	size := func() int {
		r.flush()
		return len(r.snapshot())
	}
	index, levels := uint64(0), []int{}
	for round := range int64(60) {
		for i := range int64(40) {
			index++
			key, at := fmt.Sprint("k", round, "-", i), ts(100*round+i, 0)
			r.apply(entry(index, at, put("m", key, "v", at), orAdd("s", key, "v", at)))
			index++
			gone := ts(100*round+i, 50)
			r.apply(entry(index, gone, put("m", key, "", gone), orRemove("s", key, at.String())))
		}
		index++
		r.apply(entry(index, ts(100*round+99, 0), r.collect(100*(round-5), 1000)))
		levels = append(levels, size())
	}
	early, late := slices.Max(levels[10:30]), slices.Max(levels[40:])
	if late > early*11/10 {
		t.Errorf("the state took %d bytes and later %d", early, late)
	}
}

// TestTreesOfMapsThatAreOverAreForgotten uses each map for a while, as sessions with maps of
// their own do.
func TestTreesOfMapsThatAreOverAreForgotten(t *testing.T) {
	r := newRig(t, 1)
	leaves := func() (n int) {
		r.flush()
		reader, err := r.store.NewReader()
		r.must(err)
		defer reader.Close()
		r.must(reader.Scan(1, storage.SectionLeaves, "", "\x00", func(string, []byte) bool { n++; return true }))
		return n
	}
	index := uint64(0)
	for round := range int64(20) {
		name, at, gone := fmt.Sprint("session", round), ts(10*round, 0), ts(10*round, 1)
		r.apply(
			entry(index+1, at, put(name, "a", "v", at), put(name, "b", "v", at), orAdd(name, "c", "v", at)),
			entry(index+2, gone, put(name, "a", "", gone), put(name, "b", "", gone), orRemove(name, "c", at.String())),
		)
		if round%3 == 0 {
			leaves() // stored, or not, before it is forgotten
		}
		r.apply(entry(index+3, ts(10*round+9, 0), r.collect(10*round-5, 1000)))
		index += 3
	}
	names := []string{"session18", "session19"}
	if n := leaves(); n != 3 {
		t.Errorf("%d leaves are stored", n)
	}
	if got := r.machine.MapNames(); !slices.Equal(got, names[1:]) {
		t.Errorf("maps %q", got)
	}
	want := r.dump(names...)
	if got := r.crash().dump(names...); got != want {
		t.Errorf("reopened:\n%s\nwant\n%s", got, want)
	}

	// A map that comes back between two cuts begins again.
	r = r.crash()
	again := ts(1000, 0)
	r.apply(
		entry(index+1, ts(999, 0), r.collect(900, 1000)),
		entry(index+2, again, put("session19", "a", "again", again)),
	)
	if n := leaves(); n != 2 { // of the records; that of the sets is over
		t.Errorf("%d leaves are stored of a map that came back", n)
	}
	want = r.dump("session19")
	r = r.crash()
	if got := r.dump("session19"); got != want {
		t.Errorf("reopened:\n%s\nwant\n%s", got, want)
	}
}
