package bolt

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/fsm/storage"
)

func (s *Store) get(t *testing.T, group uint32, key string) string {
	t.Helper()
	r, err := s.NewReader()
	must(t, err)
	defer r.Close()
	value, err := r.Get(group, storage.Key{Section: storage.SectionRecords, Bytes: key})
	must(t, err)
	return string(value)
}

// TestJournalsAreMergedWhileWritesGoOn reopens the store in the middle of merges, as
// it does not matter to the file whether it was closed.
func TestJournalsAreMergedWhileWritesGoOn(t *testing.T) {
	const keys, rounds = 997, 60
	path := tempPath(t)
	cfg := Config{Path: path, JournalBytes: 20_000}
	s, err := Open(cfg, deps())
	must(t, err)
	want := map[string]string{}
	frozen := 0
	for n := range rounds {
		b := storage.Batch{Group: 1, Mark: storage.Mark{Index: uint64(n + 1)}}
		for i := range 100 {
			key, value := fmt.Sprint((n*100+i*7)%keys), fmt.Sprintf("%d of %d", i, n)
			it := record(key, value)
			if want[key] = value; i%10 == 3 {
				it.Value = nil
				delete(want, key)
			}
			b.Items = append(b.Items, it)
		}
		must(t, s.Write([]storage.Batch{b}))
		if s.views.Load().latest.frozen != nil {
			frozen++
		}
		if names := s.buckets(t, journalPrefix); len(names) > 2 {
			t.Fatalf("journals %q, want at most two", names)
		}
		if n%7 == 0 {
			must(t, s.Close())
			s, err = Open(cfg, deps())
			must(t, err)
		}
	}
	defer func() { must(t, s.Close()) }()
	if frozen == 0 || s.views.Load().latest.active.number < 3 {
		t.Errorf("%d rounds in a merge, %d journals: the test does not merge", frozen, s.views.Load().latest.active.number)
	}
	for i := range keys {
		if got := s.get(t, 1, fmt.Sprint(i)); got != want[fmt.Sprint(i)] {
			t.Errorf("key %d is %q, want %q", i, got, want[fmt.Sprint(i)])
		}
	}
	s.journalBytes = 1
	s.settle(t)
	if names := s.buckets(t, journalPrefix); len(names) > 0 {
		t.Errorf("journals %q after everything was merged", names)
	}
}

// TestAMergeIsSplitIntoTransactions holds that a transaction merges few items, however
// many a Write owes: bbolt has the pages of a transaction in memory.
func TestAMergeIsSplitIntoTransactions(t *testing.T) {
	const items, most = 100, 10
	ops := map[string]int{}
	d := deps()
	d.around = func(op string, commit func() error) error {
		ops[op]++
		return commit()
	}
	s, err := Open(Config{Path: tempPath(t), JournalBytes: 1}, d)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	s.mergeMost = most
	must(t, s.Write([]storage.Batch{{Group: 1, Items: manyRecords(items), Mark: storage.Mark{Index: 1}}}))
	must(t, s.Write([]storage.Batch{{Group: 2, Items: manyRecords(1), Mark: storage.Mark{Index: 1}}}))
	// The last one finds that there is nothing more to merge.
	if frozen := s.views.Load().latest.frozen; frozen != nil || ops["write"] != 2 || ops["merge"] != items/most {
		t.Errorf("%v transactions, frozen layer %v; want 2 of writes, %d of merges and no layer", ops, frozen, items/most)
	}
}

func TestItemsOfADroppedGroupDoNotComeBackWithTheNextOne(t *testing.T) {
	path := tempPath(t)
	s := openAt(t, path)
	write := func(key string) {
		must(t, s.Write([]storage.Batch{{Group: 1, Items: []storage.Item{record(key, "v")}, Mark: storage.Mark{Index: 1}}}))
	}
	write("old")
	must(t, s.Drop(1))
	s.awaitGenerations(t, 0)
	write("new")
	must(t, s.Close())
	s = openAt(t, path)
	defer s.Close()
	if got := s.get(t, 1, "old"); got != "" {
		t.Errorf("a dropped item came back: %q", got)
	}
	if got := s.get(t, 1, "new"); got != "v" {
		t.Errorf("new item is %q", got)
	}
}
