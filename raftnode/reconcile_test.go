package raftnode

import (
	"errors"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/raftnode/logstore"
)

// memLog opens an empty log in memory.
func memLog(t *testing.T) *logstore.GroupLog {
	t.Helper()
	log, err := logstore.Open(logstore.MemConfig("wal"), logstore.Deps{FS: logstore.NewMemFS()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return log.Group(testGroup)
}

// storeEntries stores entries first to last of one term.
func storeEntries(t *testing.T, log raft.LogStore, first, last, term uint64) {
	t.Helper()
	for i := first; i <= last; i++ {
		if err := log.StoreLog(&raft.Log{Index: i, Term: term, Type: raft.LogNoop}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLogIsMadeToFitTheState(t *testing.T) {
	for _, tc := range []struct {
		name        string
		first, last uint64 // of the log, term 3; none when last is 0
		mark        storage.Mark
		removed     bool
		corrupt     bool
	}{
		{name: "nothing at all"},
		{name: "empty log", mark: storage.Mark{Index: 9, Term: 3}},
		{name: "log from the beginning", first: 1, last: 5},
		{name: "state within the log", first: 2, last: 9, mark: storage.Mark{Index: 5, Term: 3}},
		{name: "state at the end of the log", first: 2, last: 9, mark: storage.Mark{Index: 9, Term: 3}},
		{name: "log follows the state", first: 6, last: 9, mark: storage.Mark{Index: 5, Term: 2}},
		{name: "log ends before the state", first: 2, last: 4, mark: storage.Mark{Index: 5, Term: 3}, removed: true},
		{name: "another entry at the state's index", first: 2, last: 9, mark: storage.Mark{Index: 5, Term: 4}, removed: true},
		{name: "gap behind the state", first: 7, last: 9, mark: storage.Mark{Index: 5, Term: 3}, corrupt: true},
		{name: "no state and no beginning", first: 2, last: 9, corrupt: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := memLog(t)
			if tc.last > 0 {
				storeEntries(t, log, tc.first, tc.last, 3)
			}
			if err := log.SetUint64(keyCurrentTerm, 4); err != nil {
				t.Fatal(err)
			}
			err := reconcile(log, tc.mark, hclog.NewNullLogger())
			if errors.Is(err, ErrCorrupt) != tc.corrupt || err != nil && !tc.corrupt {
				t.Fatalf("error %v", err)
			}
			last, err := log.LastIndex()
			if err != nil {
				t.Fatal(err)
			}
			if want := tc.last; tc.removed && last != 0 || !tc.removed && last != want {
				t.Errorf("log ends at %d", last)
			}
		})
	}
}

func TestALogThatIsOlderThanTheStateIsRefused(t *testing.T) {
	if err := reconcile(memLog(t), storage.Mark{Index: 5, Term: 1}, hclog.NewNullLogger()); err != nil {
		t.Errorf("a group that begins with a state: %v", err)
	}
	log := memLog(t)
	storeEntries(t, log, 1, 9, 3)
	if err := log.SetUint64(keyCurrentTerm, 3); err != nil {
		t.Fatal(err)
	}
	if err := reconcile(log, storage.Mark{Index: 12, Term: 4}, hclog.NewNullLogger()); !errors.Is(err, ErrStaleLog) {
		t.Errorf("error %v, want ErrStaleLog", err)
	}
	if last, err := log.LastIndex(); err != nil || last != 9 {
		t.Errorf("log ends at %d, %v", last, err)
	}
}

func TestFirstConfigurationIsWrittenOnce(t *testing.T) {
	servers := []raft.Server{{ID: "a#1"}, {ID: "b#1"}}
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, log *logstore.GroupLog)
		mark    storage.Mark
		written bool
	}{
		{name: "new group", written: true},
		{name: "crash after the first of the two writes", written: true, prepare: func(t *testing.T, log *logstore.GroupLog) {
			if err := log.SetUint64(keyCurrentTerm, 1); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "group with a log", prepare: func(t *testing.T, log *logstore.GroupLog) { storeEntries(t, log, 1, 1, 7) }},
		{name: "group with a state", mark: storage.Mark{Index: 3, Term: 2}},
		{name: "group that has seen elections", prepare: func(t *testing.T, log *logstore.GroupLog) {
			if err := log.SetUint64(keyCurrentTerm, 2); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := memLog(t)
			if tc.prepare != nil {
				tc.prepare(t, log)
			}
			if err := bootstrap(log, tc.mark, servers); err != nil {
				t.Fatal(err)
			}
			var entry raft.Log
			err := log.GetLog(1, &entry)
			written := err == nil && entry.Term == 1 && entry.Type == raft.LogConfiguration
			if written != tc.written {
				t.Fatalf("first entry %+v, %v", entry, err)
			}
			if written {
				conf := raft.DecodeConfiguration(entry.Data)
				if len(conf.Servers) != 2 || conf.Servers[1].Address != "b#1" {
					t.Errorf("configuration %+v", conf)
				}
			}
		})
	}
}
