package logstore

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned by every call on a Log, or one of its groups, after
	// Close or Abandon. A write that was already waiting may or may not be in the log.
	ErrClosed = errors.New("log is closed")
	// ErrFailed is wrapped by every error after a write, fsync or maintenance step
	// failed. It is final: the outcome of waiting writes is unknown.
	ErrFailed = errors.New("log has failed")
	// ErrCorrupt is wrapped by every error that means stored bytes are not what was
	// written: by Open, and by GetLog for an entry that does not match its checksum.
	ErrCorrupt = errors.New("log is corrupt")
	// ErrLocked is wrapped by Open when another process or Log holds the directory.
	ErrLocked = errors.New("log directory is in use")
	// ErrVersion is wrapped by Open when a segment has a format this code cannot read.
	ErrVersion = errors.New("unknown log format version")
	// ErrTooLarge is wrapped by writes of an entry, key or value above its limit.
	// Nothing was written.
	ErrTooLarge = errors.New("too large for the log")
	// ErrNotContiguous is wrapped by StoreLogs when an index does not follow the one
	// before it. Nothing from that index on was written.
	ErrNotContiguous = errors.New("log index is not contiguous")
	// ErrMiddleRange is wrapped by DeleteRange of a range that leaves entries on both
	// sides. Nothing was written.
	ErrMiddleRange = errors.New("range is in the middle of the log")
	// ErrKeyNotFound is returned by Get and GetUint64 for a key that was never set.
	// hashicorp/raft recognises it by its text, so it is never wrapped.
	ErrKeyNotFound = errors.New("not found")
	// ErrCrashed is wrapped by every call on a handle of a MemFS that was opened
	// before Kill or Crash, and by calls that a Crash interrupted.
	ErrCrashed = errors.New("file system crashed under the handle")
)

// corrupt builds the error for damage at offset of the named file.
func corrupt(file string, offset int64, format string, args ...any) error {
	return fmt.Errorf("%w: %s at offset %d: %s", ErrCorrupt, file, offset, fmt.Sprintf(format, args...))
}
