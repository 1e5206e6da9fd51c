package logstore

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"testing"
)

func memFile1(t *testing.T, m *MemFS, name string) File {
	t.Helper()
	noErr(t, m.MkdirAll("/d"))
	f, err := m.Create(name)
	noErr(t, err)
	return f
}

func write(t *testing.T, f File, s string, off int64) {
	t.Helper()
	_, err := f.WriteAt([]byte(s), off)
	noErr(t, err)
}

func content(t *testing.T, m *MemFS, name string) string {
	t.Helper()
	f, err := m.Open(name)
	noErr(t, err)
	size, err := f.Size()
	noErr(t, err)
	b, err := io.ReadAll(io.NewSectionReader(f, 0, size))
	noErr(t, err)
	return string(b)
}

func TestMemFSCrashKeepsExactlyWhatWasSynced(t *testing.T) {
	m := NewMemFS()
	f := memFile1(t, m, "/d/f")
	write(t, f, "first", 0)
	noErr(t, f.Sync())
	noErr(t, m.SyncDir("/d"))
	write(t, f, "FIRST and more", 0)
	noErr(t, f.Truncate(3))
	lost := memFile1(t, m, "/d/never-named")
	write(t, lost, "x", 0)
	noErr(t, lost.Sync()) // the file is synced, its name is not
	m.Crash()
	if got := content(t, m, "/d/f"); got != "first" {
		t.Errorf("content %q", got)
	}
	if names, _ := m.List("/d"); !slices.Equal(names, []string{"f"}) {
		t.Errorf("files %v", names)
	}
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, ErrCrashed) {
		t.Errorf("write through an old handle: %v", err)
	}
}

func TestMemFSKillKeepsEverythingWrittenButStillUnsynced(t *testing.T) {
	m := NewMemFS()
	f := memFile1(t, m, "/d/f")
	noErr(t, m.SyncDir("/d"))
	write(t, f, "cached", 0)
	m.Kill()
	if got := content(t, m, "/d/f"); got != "cached" {
		t.Errorf("after kill: %q", got)
	}
	m.Crash()
	if got := content(t, m, "/d/f"); got != "" {
		t.Errorf("after power loss: %q", got)
	}
}

func TestMemFSNameChangesNeedSyncDir(t *testing.T) {
	m := NewMemFS()
	memFile1(t, m, "/d/a")
	memFile1(t, m, "/d/b")
	noErr(t, m.SyncDir("/d"))
	noErr(t, m.Rename("/d/a", "/d/c"))
	noErr(t, m.Remove("/d/b"))
	if names, _ := m.List("/d"); !slices.Equal(names, []string{"c"}) {
		t.Errorf("before the crash: %v", names)
	}
	m.Crash()
	if names, _ := m.List("/d"); !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("after the crash: %v", names)
	}
}

func TestMemFSTornCrashKeepsWholeSectors(t *testing.T) {
	outcomes := map[string]bool{}
	for seed := range uint64(50) {
		m := NewMemFS()
		f := memFile1(t, m, "/d/f")
		old := bytes.Repeat([]byte("o"), 4*memSector)
		write(t, f, string(old), 0)
		noErr(t, f.Sync())
		noErr(t, m.SyncDir("/d"))
		write(t, f, string(bytes.Repeat([]byte("n"), 4*memSector)), 0)
		m.CrashTorn(seed)
		got := content(t, m, "/d/f")
		shape := ""
		for at := 0; at < len(got); at += memSector {
			sector := got[at : at+memSector]
			if sector != string(bytes.Repeat([]byte{sector[0]}, memSector)) {
				t.Fatalf("sector %d is mixed", at/memSector)
			}
			shape += sector[:1]
		}
		outcomes[shape] = true
		m.Crash()
		if content(t, m, "/d/f") != got {
			t.Fatal("what survived the first crash did not survive the second")
		}
	}
	if len(outcomes) < 5 {
		t.Errorf("only %d outcomes: %v", len(outcomes), outcomes)
	}
}

func TestMemFSReadsHolesAndCutPartsAsZeros(t *testing.T) {
	m := NewMemFS()
	f := memFile1(t, m, "/d/f")
	write(t, f, "abc", 3*memPage-1)
	noErr(t, f.Truncate(3*memPage))
	noErr(t, f.Truncate(4*memPage))
	got := content(t, m, "/d/f")
	want := string(make([]byte, 3*memPage-1)) + "a" + string(make([]byte, memPage))
	if got != want {
		t.Error("unexpected content")
	}
	b := make([]byte, 10)
	if n, err := f.ReadAt(b, 4*memPage-3); n != 3 || err != io.EOF {
		t.Errorf("read over the end: %d, %v", n, err)
	}
	if m.diskUsage() != 4*memPage {
		t.Errorf("usage %d", m.diskUsage())
	}
}

func TestMemFSFaults(t *testing.T) {
	m := NewMemFS()
	f := memFile1(t, m, "/d/f")
	m.FailNext(OpSync, errInjected)
	write(t, f, "x", 0)
	wantErr(t, f.Sync(), errInjected)
	noErr(t, f.Sync())
	release := m.StallSync()
	done := make(chan error)
	go func() { done <- f.Sync() }()
	select {
	case <-done:
		t.Fatal("sync did not stall")
	default:
	}
	release()
	noErr(t, <-done)
	m.StallSync()
	go func() { done <- f.Sync() }()
	m.Crash()
	wantErr(t, <-done, ErrCrashed)
	if _, err := m.Open("/d/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of a missing file: %v", err)
	}
	if _, err := m.Lock("/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lock of a missing directory: %v", err)
	}
}
