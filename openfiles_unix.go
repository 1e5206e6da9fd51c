//go:build unix

package quorate

import (
	"math"
	"syscall"
)

// openFiles is how many files and sockets the process may have open, 0 if that is not bounded
// or not known.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || uint64(limit.Cur) > math.MaxInt32 {
		return 0
	}
	return int(limit.Cur)
}
