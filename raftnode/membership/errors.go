package membership

import (
	"errors"
	"fmt"
)

// Errors of calls on an Agent.
var (
	// ErrNoCluster: the node does not belong to a cluster yet.
	ErrNoCluster = errors.New("node does not belong to a cluster")
	// ErrLastMember: the only member cannot leave, its data would be lost.
	ErrLastMember = errors.New("the last member cannot leave the cluster")
	// ErrNotAMember: the cluster does not know the server id.
	ErrNotAMember = errors.New("the cluster has no such member")
	// ErrAlive: the member is not dead, so it has to leave by itself.
	ErrAlive = errors.New("the member is alive, or was until lately; have it leave")
	// ErrRecovering: the recovery of the node was begun and not finished. Its groups are
	// of no cluster until it is repeated.
	ErrRecovering = errors.New("the recovery of this node was not finished; repeat it")
)

// errNoLeader: no leader of the system group can be reached now. Transient.
var errNoLeader = errors.New("system group has no reachable leader")

// StoreOwnerError says that a store belongs to another node, so that using it
// would give that node's data and votes away.
type StoreOwnerError struct {
	// Owner is the node id in the store, NodeID the one asked for.
	Owner, NodeID string
}

// Error implements error.
func (e *StoreOwnerError) Error() string {
	return fmt.Sprintf("store belongs to node %q, not to %q", e.Owner, e.NodeID)
}

// DuplicateError says that a live node uses this node's id, and kept using it for
// the whole patience. The process should exit.
type DuplicateError struct {
	NodeID string
	// Addr is this node's address, OtherAddr that of the node that was first.
	Addr, OtherAddr string
}

// Error implements error.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("node id %q is used twice: by %s, which answers, and by this node at %s", e.NodeID, e.OtherAddr, e.Addr)
}

// RefusedError says that the cluster does not let this node in, and that trying
// again cannot help: it was removed, or belongs to another cluster, or holds
// another secret. The process should exit.
type RefusedError struct {
	Reason string
	// Err is the refusal as it was received, nil if it was read in the cluster's
	// own documents.
	Err error
}

// Error implements error.
func (e *RefusedError) Error() string {
	if e.Err == nil {
		return "refused by the cluster: " + e.Reason
	}
	return fmt.Sprintf("refused by the cluster: %s: %v", e.Reason, e.Err)
}

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }
