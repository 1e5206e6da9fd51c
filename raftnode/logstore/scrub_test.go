package logstore

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

func noPace(context.Context, int) error { return nil }

// flipAll flips a bit in every file of the log, at a fraction of what is written.
func flipAll(t *testing.T, l *Log, fs *MemFS, quarter int64) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		f, err := fs.Open(s.path)
		noErr(t, err)
		at := s.size.Load() * quarter / 4
		var b [1]byte
		_, err = f.ReadAt(b[:], at)
		noErr(t, err)
		b[0] ^= 8
		_, err = f.WriteAt(b[:], at)
		noErr(t, err)
		noErr(t, f.Close())
	}
}

func TestADamagedLogIsFoundAndRenewed(t *testing.T) {
	for quarter := range int64(4) {
		cfg := smallConfig("/log")
		cfg.CacheEntries = 40
		cfg.CacheBytes = 1 << 20
		l, fs := openMem(t, cfg)
		for id := range uint32(3) {
			noErr(t, l.Group(id).StoreLogs(entries(1, 60, 2, 300)))
			noErr(t, l.Group(id).SetUint64([]byte("CurrentTerm"), uint64(id)))
		}
		n, err := l.Scrub(t.Context(), noPace)
		if err != nil || n < 3*60*300 {
			t.Fatalf("scrub of an undamaged log: %d bytes, %v", n, err)
		}
		flipAll(t, l, fs, quarter)
		_, err = l.Scrub(t.Context(), noPace)
		wantErr(t, err, ErrCorrupt)
		firsts := map[uint32]uint64{}
		for id := range uint32(3) {
			bad, err := l.Group(id).Unreadable()
			noErr(t, err)
			if bad > 20 {
				t.Fatalf("entry %d of group %d is not read from memory", bad, id)
			}
			noErr(t, l.Group(id).DeleteRange(1, bad))
			firsts[id] = bad + 1
		}
		noErr(t, l.Renew(t.Context()))
		if _, err := l.Scrub(t.Context(), noPace); err != nil {
			t.Errorf("scrub of a renewed log: %v", err)
		}
		mustClose(t, l)
		l = mustOpen(t, cfg, fs)
		for id := range uint32(3) {
			checkRange(t, l.Group(id), firsts[id], 60)
			var log raft.Log
			noErr(t, l.Group(id).GetLog(60, &log))
			if !sameEntry(&log, entry(60, 2, 300)) {
				t.Errorf("entry 60 is %+v", log)
			}
			term, err := l.Group(id).GetUint64([]byte("CurrentTerm"))
			if err != nil || term != uint64(id) {
				t.Errorf("term %d, %v", term, err)
			}
		}
		mustClose(t, l)
	}
}

func TestAnEmptyLogCanBeRenewed(t *testing.T) {
	l, fs := openMem(t, smallConfig("/log"))
	noErr(t, l.Renew(t.Context()))
	names, err := fs.List("/log")
	noErr(t, err)
	for _, name := range names {
		if name == filepath.Base(segmentName(1)) {
			t.Error("the old segment is still there")
		}
	}
}

func TestScrubEndsWithItsPace(t *testing.T) {
	l, _ := openMem(t, smallConfig("/log"))
	noErr(t, l.Group(1).StoreLogs(entries(1, 10, 1, 100)))
	enough := errors.New("enough")
	_, err := l.Scrub(t.Context(), func(context.Context, int) error { return enough })
	wantErr(t, err, enough)
}
