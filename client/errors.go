package client

import (
	"errors"
	"fmt"

	"github.com/quorate/quorate/protocol"
)

// Errors of this package; check for them with errors.Is. An error of a call that changes
// something is of exactly one of the first four classes.
var (
	// ErrRefused: the server refused for good and nothing was applied. The error is a
	// *RefusedError.
	ErrRefused = errors.New("refused")
	// ErrUnavailable: it could not be done in time, and nothing was applied. Trying again
	// later can succeed.
	ErrUnavailable = errors.New("not available, nothing was applied")
	// ErrUnknown: it may have been applied, now or later, or not at all.
	ErrUnknown = errors.New("outcome unknown")
	// ErrClosed: the Client was closed before anything was applied.
	ErrClosed = errors.New("client is closed")
	// ErrNotFound: the map holds no record under the key.
	ErrNotFound = errors.New("no such record")
	// ErrNotGranted: the lock was not free in time. This request does not hold it and will
	// not.
	ErrNotGranted = errors.New("lock was not granted")
	// ErrLockLost: the lock is not held any more.
	ErrLockLost = errors.New("lock is lost")
	// ErrTooLarge: the server cut its answer short, so it does not tell what was asked.
	ErrTooLarge = errors.New("answer is too large")
)

// RefusedError is the server's refusal of a request.
type RefusedError struct {
	// Code follows HTTP: 400 malformed, 401 not authenticated, 403 forbidden, 409 stale
	// fencing token, 413 too large, 422 unknown type, 501 not part of the server.
	Code int
	// Reason is the server's text.
	Reason string
}

// Error implements error.
func (e *RefusedError) Error() string { return fmt.Sprintf("refused: %s (%d)", e.Reason, e.Code) }

// Is makes every RefusedError an ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

func refused(code protocol.Code, reason string) error {
	return &RefusedError{Code: int(code), Reason: reason}
}

// errConnection ends what belongs to one connection when it ends.
var errConnection = errors.New("connection ended")

// errNotNow ends what the server cannot do now and is not tried again by itself.
var errNotNow = errors.New("the server cannot do it now")
