package logstore

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestEmptyGroupBehavesAsRaftExpects(t *testing.T) {
	l, _ := openMem(t, smallConfig("/log"))
	g := l.Group(4)
	checkRange(t, g, 0, 0)
	if _, err := g.Get([]byte("k")); err == nil || err.Error() != "not found" {
		t.Errorf("Get: %v, want the text %q that raft compares with", err, "not found")
	}
	if _, err := g.GetUint64([]byte("k")); err == nil || err.Error() != "not found" {
		t.Errorf("GetUint64: %v", err)
	}
	if !g.IsMonotonic() {
		t.Error("not monotonic")
	}
	noErr(t, g.StoreLogs(nil))
	noErr(t, g.DeleteRange(1, 10))
	if ids := l.Groups(); len(ids) != 0 {
		t.Errorf("groups %v, want none", ids)
	}
	if l.Group(4) != g {
		t.Error("second view of the same group")
	}
}

func TestEntryKeepsAllFields(t *testing.T) {
	cases := []raft.Log{
		{Index: 1, Term: 1, Type: raft.LogNoop},
		{Index: 2, Term: 1 << 60, Type: raft.LogConfiguration, Data: []byte("d"), Extensions: []byte("e")},
		{Index: 3, Term: 9, Type: raft.LogBarrier, Extensions: []byte("only"), AppendedAt: time.Unix(-5, 7)},
		{Index: 4, Term: 9, Data: bytes.Repeat([]byte("x"), 20<<10), AppendedAt: time.Date(2400, 1, 2, 3, 4, 5, 6, time.Local)},
	}
	cfg := smallConfig("/log")
	cfg.CacheEntries = 0
	l, fs := openMem(t, cfg)
	for i := range cases {
		noErr(t, l.Group(1).StoreLog(&cases[i]))
	}
	mustClose(t, l)
	l = mustOpen(t, cfg, fs)
	defer mustClose(t, l)
	for i := range cases {
		got := raft.Log{Data: []byte("stale"), Extensions: []byte("stale")}
		noErr(t, l.Group(1).GetLog(cases[i].Index, &got))
		if !sameEntry(&got, &cases[i]) {
			t.Errorf("got %+v, want %+v", got, cases[i])
		}
		if got.AppendedAt.IsZero() != cases[i].AppendedAt.IsZero() {
			t.Errorf("entry %d: time %v", got.Index, got.AppendedAt)
		}
	}
}

func TestStoreLogsRefusesWhatIsNotContiguous(t *testing.T) {
	l, _ := openMem(t, smallConfig("/log"))
	g := l.Group(1)
	wantErr(t, g.StoreLog(entry(0, 1, 1)), ErrNotContiguous)
	noErr(t, g.StoreLogs(entries(5, 8, 1, 10)))
	wantErr(t, g.StoreLog(entry(10, 1, 1)), ErrNotContiguous)
	wantErr(t, g.StoreLog(entry(8, 1, 1)), ErrNotContiguous)
	wantErr(t, g.StoreLogs([]*raft.Log{entry(9, 1, 1), entry(11, 1, 1)}), ErrNotContiguous)
	checkRange(t, g, 5, 8)
}

func TestLimitsAreTypedErrorsAndWriteNothing(t *testing.T) {
	l, _ := openMem(t, smallConfig("/log"))
	g := l.Group(1)
	huge := entry(1, 1, 0)
	huge.Data = make([]byte, MaxEntryBytes+1)
	wantErr(t, g.StoreLog(huge), ErrTooLarge)
	wantErr(t, g.Set([]byte("k"), make([]byte, MaxStableBytes)), ErrTooLarge)
	checkRange(t, g, 0, 0)
	noErr(t, g.StoreLog(entry(1, 1, 1)))
}

func TestDeleteRange(t *testing.T) {
	cases := []struct {
		name        string
		min, max    uint64
		first, last uint64
		err         error
	}{
		{"prefix", 10, 12, 13, 20, nil},
		{"prefix from below", 1, 12, 13, 20, nil},
		{"suffix", 15, 20, 10, 14, nil},
		{"suffix beyond the end", 15, 99, 10, 14, nil},
		{"everything", 10, 20, 0, 0, nil},
		{"everything and more", 1, 99, 0, 0, nil},
		{"one at the front", 10, 10, 11, 20, nil},
		{"one at the end", 20, 20, 10, 19, nil},
		{"below", 1, 9, 10, 20, nil},
		{"above", 21, 30, 10, 20, nil},
		{"reversed", 15, 12, 10, 20, nil},
		{"middle", 12, 15, 10, 20, ErrMiddleRange},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l, fs := openMem(t, smallConfig("/log"))
			noErr(t, l.Group(1).StoreLogs(entries(10, 20, 1, 100)))
			if err := l.Group(1).DeleteRange(c.min, c.max); !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			checkRange(t, l.Group(1), c.first, c.last)
			mustClose(t, l)
			l = mustOpen(t, smallConfig("/log"), fs)
			defer mustClose(t, l)
			checkRange(t, l.Group(1), c.first, c.last)
		})
	}
}

func TestLogMayGoOnAnywhereAfterFullDelete(t *testing.T) {
	for _, next := range []uint64{4, 11, 500} {
		l, fs := openMem(t, smallConfig("/log"))
		g := l.Group(1)
		noErr(t, g.StoreLogs(entries(1, 10, 1, 100)))
		noErr(t, g.DeleteRange(1, 10))
		noErr(t, g.StoreLogs(entries(next, next+2, 2, 100)))
		checkRange(t, g, next, next+2)
		mustClose(t, l)
		l = mustOpen(t, smallConfig("/log"), fs)
		checkRange(t, l.Group(1), next, next+2)
		mustClose(t, l)
	}
}

func TestReplacedSuffixIsReadBack(t *testing.T) {
	l, fs := openMem(t, smallConfig("/log"))
	g := l.Group(1)
	noErr(t, g.StoreLogs(entries(1, 10, 1, 100)))
	noErr(t, g.DeleteRange(6, 10))
	noErr(t, g.StoreLogs(entries(6, 8, 2, 100)))
	check := func(g *GroupLog) {
		t.Helper()
		checkRange(t, g, 1, 8)
		var log raft.Log
		noErr(t, g.GetLog(7, &log))
		if !sameEntry(&log, entry(7, 2, 100)) {
			t.Errorf("got %+v", log)
		}
	}
	check(g)
	mustClose(t, l)
	l = mustOpen(t, smallConfig("/log"), fs)
	defer mustClose(t, l)
	check(l.Group(1))
}

func TestVoteIsHeldBackUntilItsCandidate(t *testing.T) {
	l, fs := openMem(t, smallConfig("/log"))
	g := l.Group(1)
	term, cand := []byte(keyLastVoteTerm), []byte(keyLastVoteCand)
	noErr(t, g.SetUint64(term, 3))
	if _, err := g.GetUint64(term); err != ErrKeyNotFound {
		t.Errorf("half a vote is visible: %v", err)
	}
	noErr(t, g.Set(cand, []byte("a")))
	noErr(t, g.SetUint64(term, 4))
	noErr(t, l.Group(2).SetUint64([]byte("CurrentTerm"), 9)) // something else is written
	checkVote(t, g, 3, "a")
	fs.Kill()
	_ = l.Abandon()
	l = mustOpen(t, smallConfig("/log"), fs)
	defer func() { _ = l.Abandon() }()
	g = l.Group(1)
	checkVote(t, g, 3, "a")
	noErr(t, g.SetUint64(term, 5))
	noErr(t, g.Set(cand, []byte("b")))
	checkVote(t, g, 5, "b")
}

func checkVote(t *testing.T, g *GroupLog, term uint64, candidate string) {
	t.Helper()
	gotTerm, err := g.GetUint64([]byte(keyLastVoteTerm))
	noErr(t, err)
	gotCand, err := g.Get([]byte(keyLastVoteCand))
	noErr(t, err)
	if gotTerm != term || string(gotCand) != candidate {
		t.Errorf("vote %d for %s, want %d for %s", gotTerm, gotCand, term, candidate)
	}
}

func TestStableValuesAreCopies(t *testing.T) {
	l, _ := openMem(t, smallConfig("/log"))
	g := l.Group(1)
	value := []byte("value")
	noErr(t, g.Set([]byte("k"), value))
	value[0] = 'X'
	got, err := g.Get([]byte("k"))
	noErr(t, err)
	got[1] = 'X'
	if again, _ := g.Get([]byte("k")); string(again) != "value" {
		t.Errorf("got %q", again)
	}
	noErr(t, g.Set([]byte("empty"), nil))
	if got, err := g.Get([]byte("empty")); err != nil || got == nil || len(got) != 0 {
		t.Errorf("empty value: %v, %v", got, err)
	}
	if _, err := g.GetUint64([]byte("k")); err == nil || errors.Is(err, ErrKeyNotFound) {
		t.Errorf("text read as number: %v", err)
	}
}

func TestCommitHintRidesAlong(t *testing.T) {
	l, fs := openMem(t, smallConfig("/log"))
	g := l.Group(1)
	noErr(t, g.StoreLogs(entries(1, 10, 1, 10)))
	before := l.Stats().Batches
	g.SetCommitHint(7)
	g.SetCommitHint(5)
	if g.CommitHint() != 7 || l.Stats().Batches != before {
		t.Fatalf("hint %d after %d writes", g.CommitHint(), l.Stats().Batches-before)
	}
	noErr(t, g.StoreLog(entry(11, 1, 10)))
	g.SetCommitHint(9) // not written any more
	fs.Crash()
	_ = l.Abandon()
	l = mustOpen(t, smallConfig("/log"), fs)
	defer mustClose(t, l)
	g = l.Group(1)
	if g.CommitHint() != 7 {
		t.Errorf("hint %d, want 7", g.CommitHint())
	}
	noErr(t, g.DeleteRange(4, 11))
	if g.CommitHint() != 3 {
		t.Errorf("hint %d after the entries above 3 were cut", g.CommitHint())
	}
}

func TestDropGroupLeavesTheOthers(t *testing.T) {
	l, fs := openMem(t, smallConfig("/log"))
	for _, id := range []uint32{0, 7, 1 << 31} {
		noErr(t, l.Group(id).StoreLogs(entries(1, 3, 1, 10)))
		noErr(t, l.Group(id).SetUint64([]byte("CurrentTerm"), 3))
		l.Group(id).SetCommitHint(2)
	}
	noErr(t, l.DropGroup(7))
	check := func(l *Log) {
		t.Helper()
		if ids := l.Groups(); len(ids) != 2 || ids[0] != 0 || ids[1] != 1<<31 {
			t.Errorf("groups %v", ids)
		}
		checkRange(t, l.Group(7), 0, 0)
		checkRange(t, l.Group(0), 1, 3)
		if _, err := l.Group(7).Get([]byte("CurrentTerm")); err != ErrKeyNotFound || l.Group(7).CommitHint() != 0 {
			t.Errorf("dropped group still has state: %v", err)
		}
	}
	check(l)
	mustClose(t, l)
	l = mustOpen(t, smallConfig("/log"), fs)
	defer mustClose(t, l)
	check(l)
	noErr(t, l.Group(7).StoreLog(entry(42, 1, 1)))
	checkRange(t, l.Group(7), 42, 42)
}

func TestConfigIsValidated(t *testing.T) {
	_, err := Open(Config{Dir: "/log"}, Deps{FS: NewMemFS()})
	if err == nil || !strings.Contains(err.Error(), "segment bytes") || !strings.Contains(err.Error(), "queue bytes") {
		t.Errorf("error %v should name both settings", err)
	}
	noErr(t, DefaultConfig("/log").Validate())
	noErr(t, MemConfig("/log").Validate())
}
