//go:build unix

package bolt

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/fsm/storage"
)

// medium is a file that a test can make fail, and recover.
type medium struct {
	file *os.File
	// broken stands in for the file while it fails; saved keeps it meanwhile.
	broken *os.File
	saved  int
}

func (m *medium) open(name string, flag int, mode os.FileMode) (f *os.File, err error) {
	if m.file, err = os.OpenFile(name, flag, mode); err != nil {
		return nil, err
	}
	m.broken, err = os.Open(os.DevNull)
	return m.file, err
}

func (m *medium) fail(t *testing.T) {
	t.Helper()
	var err error
	m.saved, err = unix.Dup(int(m.file.Fd()))
	must(t, err)
	must(t, unix.Dup2(int(m.broken.Fd()), int(m.file.Fd())))
}

func (m *medium) recover(t *testing.T) {
	t.Helper()
	must(t, unix.Dup2(m.saved, int(m.file.Fd())))
	must(t, unix.Close(m.saved))
	must(t, m.broken.Close())
}

func TestAfterAFailedWriteNothingIsWritten(t *testing.T) {
	var m medium
	path := tempPath(t)
	s, err := open(Config{Path: path}, deps(), m.open)
	must(t, err)
	write := func(index uint64) error {
		return s.Write([]storage.Batch{{Group: 1, Items: []storage.Item{record("k", "v")}, Mark: storage.Mark{Index: index}}})
	}
	must(t, write(1))
	m.fail(t)
	if err := write(2); !errors.Is(err, storage.ErrFailed) || !errors.Is(err, unix.EBADF) {
		t.Errorf("write to a failing medium: %v, want ErrFailed with the cause", err)
	}
	// Even when the medium works again: what it holds is unknown.
	m.recover(t)
	_, replaceErr := s.Replace(1)
	for call, err := range map[string]error{
		"Write": write(3), "SetMeta": s.SetMeta("m", nil), "Drop": s.Drop(1), "Replace": replaceErr,
	} {
		if !errors.Is(err, storage.ErrFailed) {
			t.Errorf("%s after the failure: %v, want ErrFailed", call, err)
		}
	}
	must(t, s.Close())
	s = openAt(t, path)
	defer s.Close()
	r, err := s.NewReader()
	must(t, err)
	defer r.Close()
	if mark, err := r.Mark(1); err != nil || mark.Index != 1 {
		t.Errorf("mark %+v, %v; want what was written before the failure", mark, err)
	}
}
