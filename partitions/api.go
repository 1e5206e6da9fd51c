package partitions

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/query"
	"github.com/quorate/quorate/partitions/live"
	"github.com/quorate/quorate/protocol"
)

// Errors of Router calls, by class.
var (
	// ErrUnavailable: nothing was proposed or shown; the same call may succeed later. It
	// wraps the cause: no leader, queue full, draining, or no holder of a group that
	// answers a read. Transient.
	ErrUnavailable = errors.New("cluster cannot answer now, nothing was applied")
	// ErrUnknown: something was proposed and at least one operation has no verdict.
	// The caller must not answer; the client re-sends. Indeterminate.
	ErrUnknown = errors.New("outcome of the write is unknown")
	// ErrTooMuch: what was asked for does not fit into one answer.
	ErrTooMuch = errors.New("more than one answer holds")
)

// errNoCluster is ErrUnavailable on a node that belongs to no cluster yet.
var errNoCluster = fmt.Errorf("%w: the node does not belong to a cluster yet", ErrUnavailable)

// Errors of queries; see package query.
var (
	ErrQueryMalformed   = query.ErrMalformed
	ErrQueryTooComplex  = query.ErrTooComplex
	ErrQueryUnsupported = query.ErrUnsupported
	ErrQueryTooCostly   = query.ErrTooCostly
	ErrTooManyGroups    = query.ErrTooManyGroups
)

// Bounds of queries; see package query.
const (
	MaxQueryRows = query.MaxRows
	NoLimit      = query.NoLimit
)

// Query is a compiled query; see query.Query.
type Query = query.Query

// QueryOptions is what takes part in a query beside its object; see query.Options.
type QueryOptions = query.Options

// Place is where a row lies in the result of a query; see query.Place.
type Place = query.Place

// CompileQuery checks and prepares a query object; see query.Compile.
func CompileQuery(object msgp.Raw, o QueryOptions) (*Query, error) { return query.Compile(object, o) }

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
	// Guard makes the merge of Record depend on what it takes the place of. Where that is
	// another value, Verdict.Changed says so.
	Guard Guard
}

// Guard is the value that a write takes the place of; see command.Guard.
type Guard = command.Guard

// GuardOf is the Guard of a value; see command.GuardOf.
func GuardOf(value []byte) Guard { return command.GuardOf(value) }

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

// Changed reports whether the operation was refused because of its Guard only: nothing was
// applied, and it may be judged and offered again.
func (v Verdict) Changed() bool { return v.Code == command.CodeChanged }

// ChangedVerdict is the verdict of an operation whose Guard does not hold.
func ChangedVerdict() Verdict {
	return Verdict{Code: command.CodeChanged, Reason: "the record was changed meanwhile"}
}

// Row is one live record of a query result, or one group of records, which has a value only.
type Row struct {
	Key    string
	Record protocol.Record
}

// rowBytes is what a row takes beside its key and value.
const rowBytes = 64

// Size is about how many bytes r takes in an answer.
func (r *Row) Size() int { return rowBytes + len(r.Key) + len(r.Record.Value) }

// Event is one committed change of a map, delivered in log order per key.
type Event = live.Event

// Interest says which changes a subscription is for; see live.Interest.
type Interest = live.Interest

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
