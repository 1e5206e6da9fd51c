package logstore

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
)

var seedFlag = flag.Uint64("seed", 0, "seed of randomised tests, 0 for a new one each run")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// testSeed returns the seed of this run and prints it if the test fails.
func testSeed(t testing.TB) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with -seed %d", seed)
		}
	})
	return seed
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// smallConfig makes everything that happens rarely happen often.
func smallConfig(dir string) Config {
	cfg := DefaultConfig(dir)
	cfg.SegmentBytes = 16 << 10
	cfg.QueueBytes = 8 << 10
	cfg.CacheEntries = 16
	cfg.CacheBytes = 16 << 10
	cfg.RewriteSegments = 2
	return cfg
}

func mustOpen(t testing.TB, cfg Config, fs FS) *Log {
	t.Helper()
	l, err := Open(cfg, Deps{FS: fs})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l
}

// openMem opens a log on a new MemFS and closes it with the test.
func openMem(t testing.TB, cfg Config) (*Log, *MemFS) {
	t.Helper()
	fs := NewMemFS()
	l := mustOpen(t, cfg, fs)
	t.Cleanup(func() {
		fs.Kill() // ends stalls
		_ = l.Abandon()
	})
	return l, fs
}

// stallWrite makes the log hang in the sync of one write of the group and returns
// when it does. The result of the write arrives on done after release.
func stallWrite(t testing.TB, l *Log, fs *MemFS, log *raft.Log) (done <-chan error, release func()) {
	t.Helper()
	var syncing atomic.Bool
	fs.SetHook(func(op Op, _ string) error {
		if op == OpSync {
			syncing.Store(true)
		}
		return nil
	})
	release = fs.StallSync()
	result := make(chan error, 1)
	go func() { result <- l.Group(1).StoreLog(log) }()
	eventually(t, "the writer is in the sync", syncing.Load)
	fs.SetHook(nil)
	return result, release
}

// queued returns how many entries wait for the writer.
func queued(l *Log) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending.logs)
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// entry returns an entry whose data depend on index, term and size.
func entry(index, term uint64, size int) *raft.Log {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(index + term*7 + uint64(i))
	}
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: data,
		AppendedAt: time.Unix(1700000000, int64(index)).UTC()}
}

// entries returns entries from first to last.
func entries(first, last, term uint64, size int) []*raft.Log {
	var logs []*raft.Log
	for i := first; i <= last; i++ {
		logs = append(logs, entry(i, term, size))
	}
	return logs
}

func sameEntry(a, b *raft.Log) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && a.AppendedAt.Equal(b.AppendedAt) &&
		string(a.Data) == string(b.Data) && string(a.Extensions) == string(b.Extensions)
}

// checkRange verifies first and last index and that exactly these entries exist.
func checkRange(t testing.TB, s raft.LogStore, first, last uint64) {
	t.Helper()
	if err := rangeError(s, first, last); err != nil {
		t.Fatal(err)
	}
}

func rangeError(s raft.LogStore, first, last uint64) error {
	gotFirst, err := s.FirstIndex()
	if err != nil {
		return err
	}
	gotLast, err := s.LastIndex()
	if err != nil {
		return err
	}
	if gotFirst != first || gotLast != last {
		return fmt.Errorf("entries %d to %d, want %d to %d", gotFirst, gotLast, first, last)
	}
	var log raft.Log
	if err := s.GetLog(last+1, &log); err != raft.ErrLogNotFound {
		return fmt.Errorf("get behind the end: %w", err)
	}
	if first == 0 {
		return nil
	}
	if err := s.GetLog(first-1, &log); err != raft.ErrLogNotFound {
		return fmt.Errorf("get before the beginning: %w", err)
	}
	for i := first; i <= last; i++ {
		if err := s.GetLog(i, &log); err != nil || log.Index != i {
			return fmt.Errorf("get %d: index %d, %w", i, log.Index, err)
		}
	}
	return nil
}

// eventually polls until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// diskUsage returns the total length of all files, as written.
func (m *MemFS) diskUsage() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var total int64
	for _, d := range m.dirs {
		for _, inode := range d.current {
			total += inode.size
		}
	}
	return total
}
