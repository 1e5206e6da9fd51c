package logstore

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// image is the content of the files of a log, by base name.
type image map[string][]byte

func loadImage(t *testing.T, dir string) image {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	noErr(t, err)
	files := image{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		noErr(t, err)
		files[filepath.Base(path)] = b
	}
	return files
}

func (f image) store(t *testing.T, dir string) {
	t.Helper()
	noErr(t, os.RemoveAll(dir))
	noErr(t, os.Mkdir(dir, dirMode))
	for name, b := range f {
		noErr(t, os.WriteFile(filepath.Join(dir, name), b, fileMode))
	}
}

// names returns the file names, oldest segment first.
func (f image) names() []string {
	var names []string
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// with returns a copy in which the content of one file is replaced.
func (f image) with(name string, b []byte) image {
	changed := image{}
	for n, content := range f {
		changed[n] = content
	}
	changed[name] = b
	return changed
}

// writeHistory fills a log on disk and returns its files, and the state after each
// request, oldest first.
func writeHistory(t *testing.T, cfg Config, seed uint64) (image, []model) {
	t.Helper()
	cfg.RewriteSegments = 100
	l := mustOpen(t, cfg, nil)
	noErr(t, l.Group(2).StoreLog(entry(1, 1, 10))) // keeps every segment in use
	d := newDriver(1, seed)
	states := []model{d.acked}
	for l.Stats().Segments < 4 || len(states) < 60 {
		noErr(t, d.step(l))
		states = append(states, d.acked)
	}
	mustClose(t, l)
	return loadImage(t, cfg.Dir), states
}

// reopen opens the log and compares group 1 with the states, newest first. It
// returns the position of the state found, or the error of Open.
func reopen(t *testing.T, cfg Config, states []model) (int, error) {
	t.Helper()
	l, err := Open(cfg, Deps{})
	if err != nil {
		return 0, err
	}
	defer mustClose(t, l)
	for i, m := range slices.Backward(states) {
		if m.check(l.Group(1)) == nil {
			return i, nil
		}
	}
	t.Fatal("the log opened in a state that never was")
	return 0, nil
}

func TestTornFrameIsCutOff(t *testing.T) {
	cfg := testLogConfig(t)
	l := mustOpen(t, cfg, nil)
	noErr(t, l.Group(1).StoreLog(entry(1, 1, 100)))
	end := l.Stats().Bytes
	noErr(t, l.Group(1).StoreLog(entry(2, 1, 5000)))
	mustClose(t, l)
	files := loadImage(t, cfg.Dir)
	name := files.names()[0]
	torn := slices.Clone(files[name])
	clear(torn[end+4096:])
	files.with(name, torn).store(t, cfg.Dir)
	l = mustOpen(t, cfg, nil)
	checkRange(t, l.Group(1), 1, 1)
	if got := int64(len(loadImage(t, cfg.Dir)[name])); got > end+frameHeaderBytes {
		t.Errorf("file of %d bytes, the log ends at %d", got, end)
	}
	noErr(t, l.Group(1).StoreLog(entry(2, 2, 50)))
	mustClose(t, l)
	l = mustOpen(t, cfg, nil)
	defer mustClose(t, l)
	checkRange(t, l.Group(1), 1, 2)
}

func testLogConfig(t *testing.T) Config {
	cfg := smallConfig(filepath.Join(t.TempDir(), "log"))
	cfg.CacheEntries = 0
	cfg.Prefill = false
	cfg.QueueBytes = 1 << 20 // one request is one frame
	return cfg
}

func TestEveryFlippedBitIsDetectedOrHarmless(t *testing.T) {
	seed := testSeed(t)
	rng := newRand(seed)
	cfg := testLogConfig(t)
	files, states := writeHistory(t, cfg, seed)
	detected := 0
	for range 150 {
		name := files.names()[rng.IntN(len(files))]
		b := slices.Clone(files[name])
		at, bit := rng.IntN(len(b)), rng.IntN(8)
		b[at] ^= 1 << bit
		files.with(name, b).store(t, cfg.Dir)
		state, err := reopen(t, cfg, states)
		switch {
		case errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion):
			detected++
			if !strings.Contains(err.Error(), name[:16]) || !strings.Contains(err.Error(), "offset") {
				t.Errorf("error names neither file nor offset: %v", err)
			}
		case err != nil:
			t.Errorf("bit %d of byte %d of %s: untyped error %v", bit, at, name, err)
		case state != len(states)-1:
			t.Errorf("bit %d of byte %d of %s took the log back to request %d of %d", bit, at, name, state, len(states)-1)
		}
	}
	// All that a flip may hit without harm is the seal.
	if detected < 140 {
		t.Errorf("only %d of 150 flips were detected", detected)
	}
}

func TestCutLastSegmentGivesAnEarlierState(t *testing.T) {
	seed := testSeed(t)
	cfg := testLogConfig(t)
	files, states := writeHistory(t, cfg, seed)
	name := files.names()[len(files)-1]
	last, refused := len(states), 0
	// The header and the checkpoint were synced before the file got its name.
	for size := len(files[name]); size >= 0; size -= 1 + size/25 {
		files.with(name, files[name][:size]).store(t, cfg.Dir)
		state, err := reopen(t, cfg, states)
		if errors.Is(err, ErrCorrupt) {
			refused++
			continue
		}
		noErr(t, err)
		if refused > 0 || state > last {
			t.Fatalf("cut at %d: state %d after state %d, %d refusals", size, state, last, refused)
		}
		last = state
	}
	if refused == 0 {
		t.Error("a segment without a checkpoint was accepted")
	}
}

func TestEveryPrefixOfTheLogOpens(t *testing.T) {
	cfg := testLogConfig(t)
	cfg.SegmentBytes = 1 << 20
	l := mustOpen(t, cfg, nil)
	empty := l.Stats().Bytes
	d := newDriver(1, 7)
	states, ends := []model{d.acked}, []int64{empty}
	for range 12 {
		noErr(t, d.step(l))
		states, ends = append(states, d.acked), append(ends, l.Stats().Bytes)
	}
	mustClose(t, l)
	files := loadImage(t, cfg.Dir)
	name := files.names()[0]
	for size := empty; size <= ends[len(ends)-1]; size += 499 {
		files.with(name, files[name][:size]).store(t, cfg.Dir)
		l := mustOpen(t, cfg, nil)
		whole := 0
		for whole+1 < len(ends) && ends[whole+1] <= size {
			whole++
		}
		if err := states[whole].check(l.Group(1)); err != nil {
			t.Fatalf("cut at %d, after request %d: %v", size, whole, err)
		}
		mustClose(t, l)
	}
}

func TestDamagedSetOfSegmentsIsRefused(t *testing.T) {
	cfg := testLogConfig(t)
	cfg.RewriteSegments = 100
	l := mustOpen(t, cfg, nil)
	for i := uint64(1); i <= 60; i++ {
		noErr(t, l.Group(1).StoreLog(entry(i, 1, 1000)))
	}
	mustClose(t, l)
	files := loadImage(t, cfg.Dir)
	names := files.names()
	if len(names) < 4 {
		t.Fatalf("%d segments", len(names))
	}
	without := func(name string) image {
		f := files.with(name, nil)
		delete(f, name)
		return f
	}
	cases := map[string]image{
		"oldest missing":      without(names[0]),
		"middle missing":      without(names[1]),
		"middle replaced":     files.with(names[1], files[names[2]]),
		"middle cut short":    files.with(names[1], files[names[1]][:len(files[names[1]])/2]),
		"middle empty":        files.with(names[1], nil),
		"last empty":          files.with(names[len(names)-1], nil),
		"name is no number":   files.with("x"+segmentSuffix, nil),
		"tail swapped":        files.with(names[len(names)-1], files[names[0]]),
		"middle zeroed":       files.with(names[1], make([]byte, len(files[names[1]]))),
		"random after header": files.with(names[1], append(slices.Clone(files[names[1]][:segmentHeaderBytes]), randomBytes(5000)...)),
	}
	for name, damaged := range cases {
		t.Run(name, func(t *testing.T) {
			damaged.store(t, cfg.Dir)
			_, err := Open(cfg, Deps{})
			wantErr(t, err, ErrCorrupt)
		})
	}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

func TestUnknownVersionIsRefused(t *testing.T) {
	cfg := testLogConfig(t)
	mustClose(t, mustOpen(t, cfg, nil))
	files := loadImage(t, cfg.Dir)
	name := files.names()[0]
	b := slices.Clone(files[name])
	b[8]++
	files.with(name, b).store(t, cfg.Dir)
	_, err := Open(cfg, Deps{})
	wantErr(t, err, ErrVersion)
}

func TestEntryDamagedWhileOpenIsNotReturned(t *testing.T) {
	cfg := testLogConfig(t)
	l := mustOpen(t, cfg, nil)
	defer mustClose(t, l)
	g := l.Group(1)
	noErr(t, g.StoreLogs(entries(1, 3, 1, 1000)))
	loc := *g.index.at(2)
	path := l.segments[0].path
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	noErr(t, err)
	_, err = f.WriteAt([]byte("damage"), int64(loc.offset)+500)
	noErr(t, err)
	noErr(t, f.Close())
	var log raft.Log
	err = g.GetLog(2, &log)
	wantErr(t, err, ErrCorrupt)
	if !strings.Contains(err.Error(), path) {
		t.Errorf("error does not name the file: %v", err)
	}
	noErr(t, g.GetLog(1, &log))
	noErr(t, g.GetLog(3, &log))
}
