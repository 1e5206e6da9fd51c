package logstore

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
)

var errInjected = errors.New("injected")

func TestGroupsShareSyncs(t *testing.T) {
	l, fs := openMem(t, MemConfig("/log"))
	const groups, writes = 8, 50
	// A hanging sync until everybody has queued makes the sharing certain.
	done, release := stallWrite(t, l, fs, entry(1, 1, 100))
	var wg sync.WaitGroup
	for id := range uint32(groups) {
		wg.Go(func() {
			for i := uint64(2); i <= writes; i++ {
				if err := l.Group(id).StoreLog(entry(i, 1, 100)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	eventually(t, "all groups wait", func() bool { return queued(l) == groups })
	if n := l.Stats().Batches; n != 0 {
		t.Errorf("%d batches were completed", n)
	}
	release()
	noErr(t, <-done)
	wg.Wait()
	s := l.Stats()
	if s.Entries != groups*(writes-1)+1 || s.Batches > s.Entries-groups+1 {
		t.Errorf("%d entries with %d syncs", s.Entries, s.Batches)
	}
	checkRange(t, l.Group(1), 1, writes)
	checkRange(t, l.Group(2), 2, writes)
}

func TestWriteIsVisibleOnlyWhenDurable(t *testing.T) {
	l, fs := openMem(t, MemConfig("/log"))
	noErr(t, l.Group(1).StoreLog(entry(1, 1, 10)))
	done, release := stallWrite(t, l, fs, entry(2, 1, 10))
	checkRange(t, l.Group(1), 1, 1)
	select {
	case err := <-done:
		t.Fatalf("acknowledged before the sync: %v", err)
	default:
	}
	release()
	noErr(t, <-done)
	checkRange(t, l.Group(1), 1, 2)
}

func TestFailureIsFinal(t *testing.T) {
	for _, op := range []Op{OpWrite, OpSync} {
		t.Run(string(op), func(t *testing.T) {
			l, fs := openMem(t, MemConfig("/log"))
			g := l.Group(1)
			noErr(t, g.StoreLog(entry(1, 1, 10)))
			eventually(t, "the end is sealed", func() bool { return sealedEnd(t, fs, l) })
			fs.FailNext(op, errInjected)
			err := g.StoreLog(entry(2, 1, 10))
			wantErr(t, err, ErrFailed)
			wantErr(t, err, errInjected)
			select {
			case <-l.Failed():
			default:
				t.Error("failure is not signalled")
			}
			syncs := l.Stats().Batches
			for name, call := range everyCall(l) {
				if err := call(); !errors.Is(err, ErrFailed) || !errors.Is(err, errInjected) {
					t.Errorf("%s after the failure: %v", name, err)
				}
			}
			if l.Stats().Batches != syncs {
				t.Error("a write was tried after the failure")
			}
			wantErr(t, l.Err(), errInjected)
			wantErr(t, l.Close(), errInjected)
		})
	}
}

// sealedEnd reports whether the writer has gone to rest.
func sealedEnd(t *testing.T, fs *MemFS, l *Log) bool {
	s := l.segments[len(l.segments)-1]
	f, err := fs.Open(s.path)
	noErr(t, err)
	b := make([]byte, frameHeaderBytes)
	end := s.size.Load()
	if _, err := f.ReadAt(b, end); err != nil {
		return false
	}
	h, ok := parseFrameHeader(b, s.seed, end)
	return ok && h.kind == frameSeal
}

// everyCall returns all calls that have to fail on a log that is down.
func everyCall(l *Log) map[string]func() error {
	g := l.Group(1)
	return map[string]func() error{
		"StoreLog":    func() error { return g.StoreLog(entry(2, 1, 10)) },
		"DeleteRange": func() error { return g.DeleteRange(1, 1) },
		"Set":         func() error { return g.Set([]byte("k"), nil) },
		"SetUint64":   func() error { return g.SetUint64([]byte("k"), 1) },
		"vote term":   func() error { return g.SetUint64([]byte(keyLastVoteTerm), 1) },
		"DropGroup":   func() error { return l.DropGroup(1) },
		"GetLog":      func() error { return g.GetLog(1, &raft.Log{}) },
		"FirstIndex":  func() error { _, err := g.FirstIndex(); return err },
		"LastIndex":   func() error { _, err := g.LastIndex(); return err },
		"Get":         func() error { _, err := g.Get([]byte("k")); return err },
		"GetUint64":   func() error { _, err := g.GetUint64([]byte("k")); return err },
	}
}

func TestEveryCallFailsAfterClose(t *testing.T) {
	l, _ := openMem(t, MemConfig("/log"))
	noErr(t, l.Group(1).StoreLog(entry(1, 1, 10)))
	mustClose(t, l)
	for name, call := range everyCall(l) {
		if err := call(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	noErr(t, l.Err())
	noErr(t, l.Close())
	select {
	case <-l.Failed():
		t.Error("Close is reported as a failure")
	default:
	}
}

func TestCloseCompletesQueuedWrites(t *testing.T) {
	l, fs := openMem(t, MemConfig("/log"))
	done, release := stallWrite(t, l, fs, entry(1, 1, 10))
	results := make(chan error, 3)
	for i := range cap(results) {
		go func() { results <- l.Group(uint32(2 + i)).StoreLog(entry(1, 1, 10)) }()
	}
	eventually(t, "writes are queued", func() bool { return queued(l) == cap(results) })
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	eventually(t, "the log is closing", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.closing
	})
	wantErr(t, l.Group(9).StoreLog(entry(1, 1, 10)), ErrClosed)
	release()
	noErr(t, <-done)
	for range cap(results) {
		noErr(t, <-results)
	}
	noErr(t, <-closed)
	l = mustOpen(t, MemConfig("/log"), fs)
	defer mustClose(t, l)
	for id := range uint32(1 + cap(results)) {
		checkRange(t, l.Group(1+id), 1, 1)
	}
}

func TestAbandonFailsQueuedWrites(t *testing.T) {
	l, fs := openMem(t, MemConfig("/log"))
	done, release := stallWrite(t, l, fs, entry(1, 1, 10))
	result := make(chan error, 1)
	go func() { result <- l.Group(2).StoreLog(entry(1, 1, 10)) }()
	eventually(t, "a write is queued", func() bool { return queued(l) == 1 })
	ended := make(chan error, 1)
	go func() { ended <- l.Abandon() }()
	wantErr(t, <-result, ErrClosed)
	release()
	noErr(t, <-done) // it was written and synced
	noErr(t, <-ended)
	l = mustOpen(t, MemConfig("/log"), fs)
	defer mustClose(t, l)
	checkRange(t, l.Group(1), 1, 1)
	checkRange(t, l.Group(2), 0, 0)
}

func TestFullQueueBlocksAndNothingIsLost(t *testing.T) {
	cfg := smallConfig("/log")
	cfg.QueueBytes = 4 << 10
	l, fs := openMem(t, cfg)
	release := fs.StallSync()
	var wg sync.WaitGroup
	for id := range uint32(6) {
		wg.Go(func() {
			// One call larger than the queue, and many small ones.
			if err := l.Group(id).StoreLogs(entries(1, 20, 1, 700)); err != nil {
				t.Error(err)
			}
			for i := uint64(21); i <= 60; i++ {
				if err := l.Group(id).StoreLog(entry(i, 1, 700)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	eventually(t, "the queue is full", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.pending.buf) >= cfg.QueueBytes
	})
	l.mu.Lock()
	if queued := len(l.pending.buf); queued > cfg.QueueBytes+1000 {
		t.Errorf("queue of %d bytes holds %d", cfg.QueueBytes, queued)
	}
	l.mu.Unlock()
	release()
	wg.Wait()
	for id := range uint32(6) {
		checkRange(t, l.Group(id), 1, 60)
	}
}

func TestDirectoryIsLocked(t *testing.T) {
	t.Run("memory", func(t *testing.T) { testLock(t, "/log", NewMemFS()) })
	t.Run("disk", func(t *testing.T) { testLock(t, filepath.Join(t.TempDir(), "a", "b"), OSFS{}) })
}

func testLock(t *testing.T, dir string, fs FS) {
	l := mustOpen(t, smallConfig(dir), fs)
	_, err := Open(smallConfig(dir), Deps{FS: fs})
	wantErr(t, err, ErrLocked)
	noErr(t, l.Group(1).StoreLog(entry(1, 1, 1)))
	mustClose(t, l)
	l = mustOpen(t, smallConfig(dir), fs)
	checkRange(t, l.Group(1), 1, 1)
	mustClose(t, l)
}

// TestRunsInVirtualTime also shows what StalledFor measures.
func TestRunsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := NewMemFS()
		l := mustOpen(t, MemConfig("/log"), fs)
		g := l.Group(1)
		noErr(t, g.StoreLog(entry(1, 1, 10)))
		synctest.Wait()
		if d := l.StalledFor(); d != 0 {
			t.Errorf("idle log stalled for %v", d)
		}
		release := fs.StallSync()
		done := make(chan error, 1)
		go func() { done <- g.StoreLog(entry(2, 1, 10)) }()
		time.Sleep(30 * time.Second) // virtual
		if d := l.StalledFor(); d != 30*time.Second {
			t.Errorf("stalled for %v, want 30s", d)
		}
		release()
		noErr(t, <-done)
		synctest.Wait()
		if d := l.StalledFor(); d != 0 {
			t.Errorf("stalled for %v after the sync", d)
		}
		_ = fs.StallSync()
		go func() { done <- g.StoreLog(entry(3, 1, 10)) }()
		synctest.Wait()
		fs.Crash()
		wantErr(t, <-done, ErrCrashed)
		_ = l.Abandon()
		l = mustOpen(t, MemConfig("/log"), fs)
		checkRange(t, l.Group(1), 1, 2)
		mustClose(t, l)
	})
}

func TestMetricsAreRegisteredAndWithdrawn(t *testing.T) {
	registry := prometheus.NewRegistry()
	fs := NewMemFS()
	for range 2 {
		l, err := Open(smallConfig("/log"), Deps{FS: fs, Registerer: registry})
		noErr(t, err)
		g := l.Group(1)
		last, err := g.LastIndex()
		noErr(t, err)
		noErr(t, g.StoreLogs(entries(last+1, last+100, 1, 1000)))
		families, err := registry.Gather()
		noErr(t, err)
		got := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			got[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		for _, name := range []string{"quorate_log_fsync_seconds", "quorate_log_batch_entries", "quorate_log_written_bytes_total", "quorate_log_segments", "service_wal_gc_skipped_total"} {
			if got[name] == 0 {
				t.Errorf("%s is 0", name)
			}
		}
		mustClose(t, l)
	}
}
