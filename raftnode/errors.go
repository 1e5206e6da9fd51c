package raftnode

import (
	"errors"
	"fmt"
)

// Errors of proposing and of changing a group, by class. Routing and transient
// errors promise that nothing was appended anywhere; ErrUnknown promises nothing.
var (
	// ErrNotHere: this node holds no replica of the group. Routing.
	ErrNotHere = errors.New("group has no replica on this node")
	// ErrBusy: the proposal queue is full, the log is slow to take entries, or the
	// node is draining. Transient.
	ErrBusy = errors.New("proposal queue is full")
	// ErrUnknown: the entry may or may not have been, or still become, committed.
	ErrUnknown = errors.New("outcome of the proposal is unknown")
	// ErrTooLarge: the commands of one proposal do not fit into one log entry. They
	// never will; the caller must split them or refuse the operation.
	ErrTooLarge = errors.New("proposal exceeds the size of a log entry")
)

// Errors of running groups.
var (
	// ErrRunning: Start of a group that runs already.
	ErrRunning = errors.New("group is already running")
	// ErrClosed: the Host was closed, or the group was stopped meanwhile.
	ErrClosed = errors.New("host is closed")
	// ErrCorrupt: log and state of a group do not fit together. Starting the group
	// would lose entries; nothing was changed.
	ErrCorrupt = errors.New("log and state do not fit together")
	// ErrStaleLog: the log is older than what is stored beside it, so it lacks votes and
	// entries that the replica has promised to keep: it was removed, or old files were put
	// in its place. The replica must not vote; nothing was changed.
	ErrStaleLog = errors.New("log is older than the state")
	// ErrDamaged: the stored state of the group is damaged, and the replica is out of
	// service until it is replaced.
	ErrDamaged = errors.New("state of the replica is damaged")
	// ErrNotCaughtUp: the server lags, or was not heard of recently, so it can neither
	// be promoted nor take over the leadership. Transient.
	ErrNotCaughtUp = errors.New("server is not caught up")
	// ErrNotVoter: the server that should take over the leadership is no other voter
	// of the group.
	ErrNotVoter = errors.New("server is no other voter of the group")
	// ErrTransferred: the leadership was already handed over once in this term, in
	// vain. The next term may try again.
	ErrTransferred = errors.New("leadership transfer was already tried in this term")
	// ErrLastVoter: the last voter of a group cannot be removed. The group can only be
	// dropped.
	ErrLastVoter = errors.New("last voter of the group")
	// ErrConflict: the configuration changed while the change was prepared. Decide
	// again from the present one.
	ErrConflict = errors.New("configuration changed meanwhile")
)

// NotLeaderError says that nothing was appended because this replica does not
// lead its group. Leader is the best known leader, or empty.
type NotLeaderError struct {
	Group  uint32
	Leader ServerID
}

// Error implements error.
func (e *NotLeaderError) Error() string {
	if e.Leader == "" {
		return fmt.Sprintf("group %d has no known leader", e.Group)
	}
	return fmt.Sprintf("group %d is led by %s", e.Group, e.Leader)
}
