package storage

import "errors"

// Errors of a Store, by class. All are wrapped with the operation.
var (
	// ErrCorrupt: stored bytes fail their checksum or cannot be decoded. The caller
	// must not treat the item as absent.
	ErrCorrupt = errors.New("stored data is corrupt")
	// ErrLocked: another process holds the store.
	ErrLocked = errors.New("store is in use by another process")
	// ErrFormat: the data was written in a format that this build does not know,
	// by a newer one.
	ErrFormat = errors.New("stored data has an unknown format")
	// ErrFailed: an earlier write failed in the medium; the store takes no more.
	ErrFailed = errors.New("store failed")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrInvalid: the call breaks the contract of Store: a key of section 0, a
	// key or value over its limit, or two batches of one group.
	ErrInvalid = errors.New("invalid store request")
)
