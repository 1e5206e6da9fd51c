//go:build unix && !linux

package logstore

import "os"

// syncData uses fsync where there is no fdatasync (and F_FULLFSYNC on darwin).
func syncData(f *os.File) error { return f.Sync() }
