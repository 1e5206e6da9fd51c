package quorate

import "errors"

// ErrStorageFailed is wrapped by the error that Serve returns when the node's
// disk failed while it was running: a write or a sync was refused, or stored data
// was found damaged. The node has stopped; nothing that it acknowledged depends
// on the failed write.
var ErrStorageFailed = errors.New("storage failed")

// Errors of handing a leadership over. Nothing was begun but with the last.
var (
	// ErrNoGroup: the cluster has no such group.
	ErrNoGroup = errors.New("there is no such group")
	// ErrNoLeader: the group has no leader that accepts proposals now. Transient.
	ErrNoLeader = errors.New("the group has no leader now")
	// ErrNotVoter: the node has no vote in the group.
	ErrNotVoter = errors.New("the node is no voter of the group")
	// ErrLagging: the node lags behind the leader, or was not heard of lately.
	// Transient.
	ErrLagging = errors.New("the node is not caught up")
	// ErrTransferTried: the leadership was handed over in vain once in this term. The
	// next term may try again.
	ErrTransferTried = errors.New("the leadership was already handed over in this term")
	// ErrTransferUnknown: the leadership may or may not have moved, or move still.
	ErrTransferUnknown = errors.New("the outcome of the transfer is unknown")
)

// Errors of recovering a survivor. Nothing was changed.
var (
	// ErrNothingToRecover: there is no store, or its node is no member of a cluster.
	ErrNothingToRecover = errors.New("there is nothing to recover here")
	// ErrMembersAnswer: another member runs, which the recovery would leave behind.
	ErrMembersAnswer = errors.New("another member answers, so the cluster is not lost; stop it, or have it take over")
	// ErrGroupsMissing: the node has nothing of a group, which would begin anew, empty.
	ErrGroupsMissing = errors.New("this node has nothing of some groups")
	// ErrNoTokens: the fencing tokens of a group would pass 2^53.
	ErrNoTokens = errors.New("there are not enough fencing tokens left")
)

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
