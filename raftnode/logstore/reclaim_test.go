package logstore

import (
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
)

// TestLogStaysSmallWhileOneGroupIdles lets one group write and truncate many times
// the size of the log while others keep a few old entries and keys.
func TestLogStaysSmallWhileOneGroupIdles(t *testing.T) {
	cfg := smallConfig("/log")
	l, fs := openMem(t, cfg)
	idle := map[uint32]uint64{1: 3, 2: 20, 3: 1}
	for id, n := range idle {
		noErr(t, l.Group(id).StoreLogs(entries(5, 4+n, 2, 300)))
		noErr(t, l.Group(id).SetUint64([]byte("CurrentTerm"), uint64(id)))
	}
	noErr(t, l.Group(4).SetUint64([]byte("CurrentTerm"), 4)) // keys but no entries
	busy := l.Group(9)
	limit := int64(cfg.RewriteSegments+3) * cfg.SegmentBytes
	for i := uint64(1); i <= 2000; i++ {
		noErr(t, busy.StoreLog(entry(i, 1, 1000)))
		if i%10 == 0 {
			noErr(t, busy.DeleteRange(1, i-5))
		}
		if i%100 == 0 {
			eventually(t, "the log is back below its bound", func() bool { return fs.diskUsage() <= limit })
		}
	}
	checkIdle := func(l *Log) {
		t.Helper()
		for id, n := range idle {
			checkRange(t, l.Group(id), 5, 4+n)
			var log raft.Log
			noErr(t, l.Group(id).GetLog(5, &log))
			if !sameEntry(&log, entry(5, 2, 300)) {
				t.Errorf("group %d: entry 5 is %+v", id, log)
			}
			term, err := l.Group(id).GetUint64([]byte("CurrentTerm"))
			if err != nil || term != uint64(id) {
				t.Errorf("group %d: term %d, %v", id, term, err)
			}
		}
	}
	checkIdle(l)
	s := l.Stats()
	if s.Rotations < 100 || s.RewrittenBytes == 0 {
		t.Errorf("the test did not reclaim: %+v", s)
	}
	if s.RewrittenBytes > s.WrittenBytes/4 {
		t.Errorf("%d of %d written bytes are copies", s.RewrittenBytes, s.WrittenBytes)
	}
	mustClose(t, l)
	l = mustOpen(t, cfg, fs)
	defer mustClose(t, l)
	checkIdle(l)
	if term, err := l.Group(4).GetUint64([]byte("CurrentTerm")); term != 4 || err != nil {
		t.Errorf("group 4: term %d, %v", term, err)
	}
}

func TestLiveDataIsNotCopiedAgainAndAgain(t *testing.T) {
	cfg := smallConfig("/log")
	l, _ := openMem(t, cfg)
	g := l.Group(1)
	for i := uint64(1); i <= 500; i++ {
		noErr(t, g.StoreLog(entry(i, 1, 1000)))
	}
	if s := l.Stats(); s.Segments < 20 || s.RewrittenBytes != 0 {
		t.Errorf("a log that is all alive was copied: %+v", s)
	}
	noErr(t, g.DeleteRange(1, 500))
	noErr(t, g.StoreLog(entry(501, 1, 10)))
	eventually(t, "all but the last segment are freed", func() bool { return l.Stats().Segments == 1 })
}

func TestRewritingRacesWithChangesOfItsGroup(t *testing.T) {
	seed := testSeed(t)
	cfg := smallConfig("/log")
	cfg.RewriteSegments = 1
	l, fs := openMem(t, cfg)
	var drivers []*driver
	var wg sync.WaitGroup
	var running atomic.Int32
	for id := range uint32(3) {
		d := newDriver(id, seed)
		drivers = append(drivers, d)
		running.Add(1)
		wg.Go(func() {
			defer running.Add(-1)
			for range 400 {
				if err := d.step(l); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	// Entries that only rewriting moves: their segments would stay for ever.
	noErr(t, l.Group(99).StoreLogs(entries(1, 5, 1, 500)))
	for running.Load() > 0 {
		var log raft.Log
		for i := uint64(1); i <= 5; i++ {
			noErr(t, l.Group(99).GetLog(i, &log))
			if !sameEntry(&log, entry(i, 1, 500)) {
				t.Fatalf("entry %d is %+v", i, log)
			}
		}
	}
	wg.Wait()
	if s := l.Stats(); s.RewrittenBytes == 0 {
		t.Errorf("nothing was rewritten: %+v", s)
	}
	for range 2 {
		for _, d := range drivers {
			noErr(t, d.acked.check(l.Group(d.id)))
		}
		mustClose(t, l)
		l = mustOpen(t, cfg, fs)
	}
	mustClose(t, l)
}

func TestSegmentsAreRecycledAndFilledAhead(t *testing.T) {
	cfg := smallConfig(filepath.Join(t.TempDir(), "log"))
	l := mustOpen(t, cfg, nil)
	g := l.Group(1)
	for i := uint64(1); i <= 300; i++ {
		noErr(t, g.StoreLog(entry(i, 1, 1000)))
		noErr(t, g.DeleteRange(1, i-1))
	}
	eventually(t, "the active segment was filled before", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.segments[len(l.segments)-1].filled >= cfg.SegmentBytes/2
	})
	mustClose(t, l)
	l = mustOpen(t, cfg, nil)
	defer mustClose(t, l)
	checkRange(t, l.Group(1), 300, 300)
	names, err := OSFS{}.List(cfg.Dir)
	noErr(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, tempSuffix) {
			t.Errorf("%s was left behind", name)
		}
	}
}

func TestNoSpaceForTheNextFileIsNoFailure(t *testing.T) {
	cfg := smallConfig("/log")
	l, fs := openMem(t, cfg)
	fs.SetHook(func(op Op, name string) error {
		if op == OpCreate && strings.Contains(name, "spare") {
			return errInjected
		}
		return nil
	})
	for i := uint64(1); i <= 100; i++ {
		noErr(t, l.Group(1).StoreLog(entry(i, 1, 1000)))
	}
	checkRange(t, l.Group(1), 1, 100)
	noErr(t, l.Err())
}

func TestFailedMaintenanceStopsTheLog(t *testing.T) {
	cfg := smallConfig("/log")
	cfg.Prefill = false
	l, fs := openMem(t, cfg)
	fs.SetHook(func(op Op, _ string) error {
		if op == OpRemove {
			return errInjected
		}
		return nil
	})
	g := l.Group(1)
	for i := uint64(1); l.Err() == nil && i < 1000; i++ {
		_ = g.StoreLog(entry(i, 1, 1000))
		_ = g.DeleteRange(1, i-1)
	}
	wantErr(t, l.Err(), errInjected)
}
