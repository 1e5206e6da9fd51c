package fsm

import "errors"

// Errors of a Machine. All are wrapped with the operation.
var (
	// ErrStopped: an entry could not be applied, or the store failed under the
	// machine. It wraps the cause. The state after the last good entry is in the
	// log and, up to the flushed mark, in the store; this Machine serves no more.
	ErrStopped = errors.New("state machine stopped")
	// ErrClosed: the machine was closed.
	ErrClosed = errors.New("state machine is closed")
	// ErrUnknownKind: a log command of a kind that this build does not know and may
	// not skip.
	ErrUnknownKind = errors.New("unknown command kind")
	// ErrSnapshot: a snapshot is damaged, incomplete, of another group or of an
	// unknown format. Nothing of it was taken over.
	ErrSnapshot = errors.New("unusable snapshot")
)
