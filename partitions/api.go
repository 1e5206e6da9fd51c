package partitions

import (
	"errors"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/partitions/live"
	"github.com/quorate/quorate/protocol"
)

// Errors of Router calls, by class.
var (
	// ErrUnavailable: nothing was proposed; the same call may succeed later. It
	// wraps the cause: no leader, queue full, or draining. Transient.
	ErrUnavailable = errors.New("cluster cannot take writes now, nothing was applied")
	// ErrUnknown: something was proposed and at least one operation has no verdict.
	// The caller must not answer; the client re-sends. Indeterminate.
	ErrUnknown = errors.New("outcome of the write is unknown")
	// ErrTooMuch: what was asked for does not fit into one answer.
	ErrTooMuch = errors.New("more than one answer holds")
	// ErrIncomplete: this node does not hold every partition of the map and cannot
	// answer for all of them.
	ErrIncomplete = errors.New("not all partitions are readable on this node")
)

// Op is one write, validated by the caller: names are legal, the value is within its
// limits, the writer may write. It merges Record, unless Add or Remove is set.
type Op struct {
	Map, Key string
	// Record is the last-write-wins record to merge. A zero Timestamp asks the proposer
	// to stamp at commit order.
	Record protocol.Record
	// Add is the record to add to the observed-remove map.
	Add *protocol.ORRecord
	// Remove is the tag to remove from the observed-remove map. With Homeless, the key
	// that held it is not known.
	Remove   string
	Homeless bool
	// Level is the write concern asked for; LevelDefault asks for nothing.
	Level protocol.WriteConcern
	// Dedup identifies the operation across re-sends by (client, op id, content).
	// It matters only where the server stamps; empty means that every call is a
	// new operation.
	Dedup string
	// Fence makes the operation depend on a lock.
	Fence Fence
}

// Fence names a lock and the token with which the writer holds it.
type Fence = command.Fence

// Verdict is the outcome of one Op: accepted at Level, or refused for good with
// Code and Reason.
type Verdict struct {
	Level  protocol.WriteConcern
	Code   protocol.Code
	Reason string
}

// Refused reports whether the operation was refused.
func (v Verdict) Refused() bool { return v.Code != 0 }

// Row is one live record of a query result.
type Row struct {
	Key    string
	Record protocol.Record
}

// Event is one committed change of a map, delivered in log order per key.
type Event = live.Event

// Sink receives the events of one subscription; see live.Sink.
type Sink = live.Sink

// Subscription is one live subscription. Release starts delivery after the
// snapshot was queued for the client; Close ends it.
type Subscription = live.Subscription

// MapInfo is the cluster as clients see it.
type MapInfo struct {
	// Version grows with every change and is at least 1.
	Version uint32
	Nodes   []NodeInfo
	// Owner and Backups hold a node id, or none, per partition.
	Owner   [protocol.PartitionCount]string
	Backups [protocol.PartitionCount][]string
}

// NodeInfo is one node of MapInfo.
type NodeInfo struct {
	NodeID string
	// WebSocket is the complete URL that clients dial, ending in /ws.
	WebSocket string
	// Status is ACTIVE, JOINING, LEAVING, SUSPECTED or FAILED.
	Status string
}
