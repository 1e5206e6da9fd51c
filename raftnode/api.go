package raftnode

import (
	"context"
	"io"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
)

// ServerID names one life of a node's data: node id, '#', incarnation. It is the
// Raft server id and, as a logical address, the Raft server address. A node whose
// disk was emptied returns under a new ServerID and can never vote as the old one.
type ServerID = raft.ServerID

// Command is one encoded command for Propose: see package command.
type Command = command.Raw

// Entry is one committed log entry on its way to a StateMachine.
type Entry = fsm.Entry

// Proposal is a set of commands queued at the leader of their group. They keep
// their order and travel in one log entry.
type Proposal interface {
	// Wait blocks until the commands are applied on this replica and returns one
	// result per command, in order. Errors: *NotLeaderError and ErrBusy (nothing
	// was appended), ErrUnknown, or the context's error joined with ErrUnknown.
	Wait(ctx context.Context) ([]command.Result, error)
}

// StateMachine is the replicated state of one group; *fsm.Machine is the one of
// production. Apply and Restore are called by one goroutine at a time, in log
// order; everything else may be called beside them.
type StateMachine interface {
	// Apply applies committed entries and returns one list of results per entry.
	// Entries at or below Applied are skipped. An error stops the group for good.
	Apply(entries []fsm.Entry) ([][]command.Result, error)
	// Applied is the last entry that Apply or Restore put into the state.
	Applied() (index, term uint64)
	// Flushed is the mark of the durable state: what a restart begins with.
	Flushed() storage.Mark
	// Digest is the state's checksum and the index that it belongs to.
	Digest() (index, digest uint64)
	// ClockFloor is the highest stamp applied.
	ClockFloor() (millis, counter int64)
	// Checkpoint blocks until the state at position is durable and Flushed is not
	// below it.
	Checkpoint(ctx context.Context, at fsm.Position) error
	// OpenSnapshot opens a consistent view of the durable state for sending.
	OpenSnapshot() (*fsm.Snapshot, error)
	// Restore replaces the state by a received snapshot, durably and at once, or
	// leaves the old one.
	Restore(r io.Reader) error
	// Close releases the machine; nothing is called afterwards.
	Close() error
}

// Clock stamps the entries that this node proposes. *hlc.Clock implements it.
type Clock interface {
	// Reserve issues n consecutive stamps, which differ in the counter, and returns
	// the first.
	Reserve(n int) protocol.Timestamp
	// Advance makes all later stamps greater than the given one.
	Advance(millis, counter int64)
}

// Network gives each group its own stream layer on the node's port; *mux.Mux
// implements it. Closing a layer detaches the group, which may then attach again.
type Network interface {
	StreamLayer(group uint32) raft.StreamLayer
}
