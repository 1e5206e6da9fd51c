package logstore

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// syncData is fdatasync: it leaves out the file times, which no reader needs, and
// so saves a journal commit when the file was not extended.
func syncData(f *os.File) error {
	defer runtime.KeepAlive(f)
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		// An interrupted call did not report on the write-back; os.File.Sync repeats
		// it for the same reason.
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
