package fsm_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
)

func TestPutKeepsTheGreaterStamp(t *testing.T) {
	r := newRig(t, 1)
	results := r.apply(
		entry(1, ts(100, 0), put("m", "k", "old", ts(50, 0))),
		entry(2, ts(101, 0), put("m", "k", "new", ts(51, 0))),
		entry(3, ts(102, 0), put("m", "k", "late", ts(50, 9)), put("m", "k", "same", ts(51, 0))),
		entry(4, ts(103, 0), put("m", "k", "", ts(60, 0))),
	)
	want := [][]command.Result{
		{{Index: 1, Changed: true}},
		{{Index: 2, Changed: true}},
		{{Index: 3}, {Index: 3}},
		{{Index: 4, Changed: true}},
	}
	if diff := cmp.Diff(want, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	rec, found, err := r.machine.Get("m", "k")
	if err != nil || !found || !rec.IsTombstone() || rec.Timestamp != ts(60, 0) {
		t.Errorf("Get = %v, %v, %v; want the tombstone", rec, found, err)
	}
	if _, found, _ := r.machine.Get("m", "other"); found {
		t.Error("a key that nobody wrote is found")
	}
}

func TestChangesComeInLogOrderAndOnlyForRealChanges(t *testing.T) {
	r := newRig(t, 3)
	r.apply(
		entry(1, ts(100, 0), put("m", "a", "1", ts(10, 0)), put("m", "b", "2", ts(10, 0))),
		entry(2, ts(101, 0), put("m", "a", "lost", ts(9, 0))),
		entry(3, ts(102, 0), put("m", "a", "", ts(11, 0)), put("m", "a", "again", ts(12, 0))),
	)
	records := storage.SectionRecords
	want := []*fsm.Changes{{Group: 3, Index: 3, List: []fsm.Change{
		{Index: 1, Section: records, Map: "m", Key: "a", Record: record("1", ts(10, 0))},
		{Index: 1, Section: records, Map: "m", Key: "b", Record: record("2", ts(10, 0))},
		{Index: 3, Section: records, Map: "m", Key: "a", Record: record("", ts(11, 0)), Existed: true, Old: record("1", ts(10, 0)).Value},
		{Index: 3, Section: records, Map: "m", Key: "a", Record: record("again", ts(12, 0))},
	}}}
	if diff := cmp.Diff(want, r.changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestStampedPutTakesTheEntryStampOfItsPosition(t *testing.T) {
	r := newRig(t, 1)
	stamped := func(key string, overwrite bool) command.Raw {
		return command.EncodePut(command.Put{Map: "m", Key: key, Record: record("v", protocol.Timestamp{}), Stamped: true, Overwrite: overwrite})
	}
	future := protocol.Timestamp{Millis: 5000, Counter: 7, NodeID: "client"}
	r.apply(
		entry(1, ts(1, 0), put("m", "b", "client's", future), put("m", "c", "client's", future)),
		entry(2, ts(100, 40), stamped("a", false), stamped("b", false), stamped("c", true)),
	)
	tests := []struct {
		key  string
		want protocol.Timestamp
	}{
		{"a", ts(100, 40)},
		{"b", future},      // re-stamped into the past: loses
		{"c", ts(5000, 8)}, // overwrites in commit order
	}
	for _, tc := range tests {
		rec, _, err := r.machine.Get("m", tc.key)
		if err != nil || rec.Timestamp != tc.want {
			t.Errorf("%s is stamped %s, %v; want %s", tc.key, rec.Timestamp, err, tc.want)
		}
	}
	if millis, counter := r.machine.ClockFloor(); millis != 5000 || counter != 8 {
		t.Errorf("clock floor %d:%d, want 5000:8", millis, counter)
	}
}

// The stamp of a write is replaced when it is too far in the future. When it is sent again, it
// may not be that far any more, or in the past.
func TestTheRepeatOfAWriteFromTheFutureChangesNothing(t *testing.T) {
	for _, dedup := range []string{"", "id"} {
		sent := command.Put{Map: "m", Key: "k", Record: record("future", ts(70_000, 0)), Dedup: dedup}
		replaced := sent
		if dedup == "" {
			replaced.Dedup = sent.FarDedup()
		}
		replaced.Stamped, replaced.Record.Timestamp = true, protocol.Timestamp{}
		repeatChangesNothing(t, sent, replaced)
	}
}

// repeatChangesNothing applies replaced, which sent became the first time, and then sent.
func repeatChangesNothing(t *testing.T, sent, replaced command.Put) {
	t.Helper()
	r := newRig(t, 1)
	first := r.apply(entry(1, ts(5_000, 0), command.EncodePut(replaced)))[0][0]
	later := ts(6_000, 0)
	r.apply(entry(2, later, put("m", "k", "later", later)))
	r.flush()
	snapshot := r.snapshot()
	for i, r := range []*rig{restored(t, 1, snapshot), r.crash()} {
		for n, stamp := range []protocol.Timestamp{ts(20_000, 0), ts(90_000, 0)} {
			again := r.apply(entry(uint64(3+n), stamp, command.EncodePut(sent)))[0][0]
			if again.Changed || again.Index != first.Index || again.Code != 0 {
				t.Errorf("%d: answered %+v, first %+v", i, again, first)
			}
		}
		rec, _, err := r.machine.Get("m", "k")
		r.must(err)
		if rec.Timestamp != later {
			t.Errorf("%d: record is %+v", i, rec)
		}
	}
}

func TestARepeatedStampedPutAnswersAsTheFirstTime(t *testing.T) {
	r := newRig(t, 1)
	write := func(id, text string) command.Raw {
		return command.EncodePut(command.Put{Map: "m", Key: "k", Record: record(text, protocol.Timestamp{}), Stamped: true, Overwrite: true, Dedup: id})
	}
	r.apply(entry(1, ts(1, 0), write("op1", "one")), entry(2, ts(2, 0), write("op2", "two")))
	results := r.apply(entry(3, ts(3, 0), write("op1", "one")))
	if diff := cmp.Diff([][]command.Result{{{Index: 1}}}, results); diff != "" {
		t.Errorf("result of the repeat (-want +got):\n%s", diff)
	}
	r.flush()
	r = r.crash()
	results = r.apply(entry(4, ts(4, 0), write("op2", "two")))
	if diff := cmp.Diff([][]command.Result{{{Index: 2}}}, results); diff != "" {
		t.Errorf("result of the repeat after a restart (-want +got):\n%s", diff)
	}
	if rec, _, _ := r.machine.Get("m", "k"); string(rec.Value[1:]) != "two" {
		t.Errorf("record is %q, want it as the second operation wrote it", rec.Value)
	}
}

func TestAppliedEntriesAreSkippedWithoutResults(t *testing.T) {
	r := newRig(t, 1)
	r.apply(entry(5, ts(1, 0), put("m", "k", "v", ts(1, 0))))
	before := r.dump("m")
	results := r.apply(entry(5, ts(1, 0), put("m", "k", "w", ts(2, 0))))
	if len(results) != 1 || results[0] != nil {
		t.Errorf("results of a skipped entry: %v", results)
	}
	if after := r.dump("m"); after != before {
		t.Errorf("skipped entry changed the state from\n%s to\n%s", before, after)
	}
}

func TestABadEntryStopsTheMachineBeforeIt(t *testing.T) {
	good := entry(1, ts(1, 0), put("m", "k", "v", ts(1, 0)))
	ok := put("m", "half", "applied", ts(2, 0))
	tests := []struct {
		name string
		bad  fsm.Entry
		want error
	}{
		{"undecodable", fsm.Entry{Index: 2, Term: 1, Data: []byte{1, 2, 3}}, command.ErrMalformed},
		{"zeroed", fsm.Entry{Index: 2, Term: 1, Data: make([]byte, 64)}, command.ErrMalformed},
		{"unknown kind", entry(2, ts(2, 0), ok, command.Raw{Kind: 99, Version: 1}), fsm.ErrUnknownKind},
		{"newer version", entry(2, ts(2, 0), ok, command.Raw{Kind: command.KindPut, Version: 9}), command.ErrFormat},
		{"bad body", entry(2, ts(2, 0), ok, command.Raw{Kind: command.KindPut, Version: 1, Body: []byte{0}}), command.ErrMalformed},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 1)
			results, err := r.machine.Apply([]fsm.Entry{good, tc.bad, entry(3, ts(3, 0), ok)})
			if !errors.Is(err, fsm.ErrStopped) || !errors.Is(err, tc.want) {
				t.Fatalf("error %v, want ErrStopped and %v", err, tc.want)
			}
			if len(results) != 1 || len(results[0]) != 1 || !results[0][0].Changed {
				t.Errorf("results before the bad entry: %v", results)
			}
			if index, _ := r.machine.Applied(); index != 1 {
				t.Errorf("applied %d, want 1", index)
			}
			if len(r.changes) != 1 || r.changes[0].Index != 1 || len(r.changes[0].List) != 1 {
				t.Errorf("changes %+v, want those of entry 1", r.changes)
			}
			if _, err := r.machine.Apply([]fsm.Entry{entry(2, ts(2, 0), ok)}); !errors.Is(err, fsm.ErrStopped) {
				t.Errorf("a stopped machine applies: %v", err)
			}
			if _, _, err := r.machine.Get("m", "k"); !errors.Is(err, fsm.ErrStopped) {
				t.Errorf("a stopped machine answers reads: %v", err)
			}
			// What was applied of the bad entry must never reach the store.
			r.must(r.flusher.Close(t.Context()))
			again := r.crash()
			if _, found, err := again.machine.Get("m", "half"); found || err != nil {
				t.Errorf("half an entry was flushed (%v, %v)", found, err)
			}
		})
	}
}

func TestIgnorableUnknownKindsAreSkipped(t *testing.T) {
	r := newRig(t, 1)
	results := r.apply(entry(1, ts(1, 0), command.Raw{Kind: command.Ignorable | 9, Version: 3}, put("m", "k", "v", ts(1, 0))))
	want := [][]command.Result{{{Index: 1}, {Index: 1, Changed: true}}}
	if diff := cmp.Diff(want, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

// TestAWriterLearnsItsRecordIfTheStampIsAnother tells changes that their writer knows from
// those that it has to be told of.
func TestAWriterLearnsItsRecordIfTheStampIsAnother(t *testing.T) {
	r := newRig(t, 1)
	own := command.Put{Map: "m", Key: "own", Record: record("v", ts(5, 0)), Origin: "me"}
	unstamped, replaced := own, own
	unstamped.Key, unstamped.Record.Timestamp, unstamped.Stamped, unstamped.Overwrite = "unstamped", protocol.Timestamp{}, true, true
	replaced.Key, replaced.Record.Timestamp, replaced.Stamped = "replaced", protocol.Timestamp{}, true
	r.apply(entry(1, ts(10, 0), command.EncodePut(own), command.EncodePut(unstamped), command.EncodePut(replaced)))
	for _, c := range r.changes[0].List {
		if want := map[string]string{"own": "me", "unstamped": "me", "replaced": ""}[c.Key]; c.Origin != want {
			t.Errorf("%s: origin %q, want %q", c.Key, c.Origin, want)
		}
	}
}
