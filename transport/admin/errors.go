package admin

import (
	"errors"
	"fmt"
)

// NodeError says that a node did not do what it was told to.
type NodeError struct {
	NodeID string
	Err    error
}

// Error implements error.
func (e *NodeError) Error() string { return fmt.Sprintf("node %s: %s", e.NodeID, e.Err) }

// Unwrap returns Err.
func (e *NodeError) Unwrap() error { return e.Err }

// errNoBackend: the request was answered that the node is not ready.
var errNoBackend = errors.New("the node does not belong to a cluster yet")
