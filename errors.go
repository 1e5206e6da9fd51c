package quorate

import "errors"

// ErrStorageFailed is wrapped by the error that Serve returns when the node's
// disk failed while it was running: a write or a sync was refused, or stored data
// was found damaged. The node has stopped; nothing that it acknowledged depends
// on the failed write.
var ErrStorageFailed = errors.New("storage failed")

// FieldError is one problem of a ServerConfig. Its text never contains a secret.
type FieldError struct {
	// Field is the path of the field below ServerConfig, such as "Network.Port".
	Field string
	// Reason says what the field must be.
	Reason string
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + " " + e.Reason }

// RefusedError says that the cluster does not let this node in, and that trying
// again cannot help: its id is in use, its secret or its cluster is another, or it
// was removed.
type RefusedError struct{ Err error }

// Error implements error.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }
