package raftnode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
)

// Group is this node's replica of one Raft group. All methods are safe for
// concurrent use, and return ErrClosed or zero values once the group was stopped.
type Group struct {
	id        uint32
	host      *Host
	logger    hclog.Logger
	log       groupLog
	machine   StateMachine
	applier   *applier
	batcher   *batcher
	snapshots *snapshotStore
	installs  installWatch
	counters  groupCounters

	mu sync.RWMutex // protects in
	in *instance

	// ready is the term in which this replica leads and has caught up with its own
	// log, so that it may propose.
	ready atomic.Uint64
	// transferredTerm is the last term in which a transfer was tried.
	transferredTerm atomic.Uint64

	// stop is closed when the group is told to end; ctx ends with it.
	stop   chan struct{}
	cancel context.CancelFunc
	ctx    context.Context
	// supervising counts supervise; running the goroutines that it starts.
	supervising, running sync.WaitGroup
}

// ID returns the group's number.
func (g *Group) ID() uint32 { return g.id }

// Machine returns the replica's state machine.
func (g *Group) Machine() StateMachine { return g.machine }

func (g *Group) instance() *instance {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.in
}

// Votes reports whether this replica is a voter as of the last configuration that is
// applied here. One that is not may still be far behind.
func (g *Group) Votes() bool {
	voter, _ := g.applier.current.Load().find(g.host.cfg.ID)
	return voter
}

// notLeader names the leader to the caller, unless it is this replica: then it is
// not ready yet, or no more.
func (g *Group) notLeader() error {
	id, _ := g.Leader()
	if id == g.host.cfg.ID {
		id = ""
	}
	return &NotLeaderError{Group: g.id, Leader: id}
}

// Propose queues commands for one log entry of this group. It does not block.
// Errors: *NotLeaderError, ErrBusy, ErrTooLarge; nothing was appended then. The
// commands must not be modified until the proposal is answered.
func (g *Group) Propose(cmds []Command) (Proposal, error) {
	if g.host.draining.Load() {
		return nil, ErrBusy
	}
	if !g.IsLeader() {
		return nil, g.notLeader()
	}
	p, err := g.batcher.propose(cmds)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// append hands an entry to the library; see batcher. The entry is built, and so
// stamped, only when the clock is past everything that is in the log.
func (g *Group) append(build func() []byte) (wait func() ([]command.Result, error)) {
	in := g.instance()
	if term, leads := in.leads(); !leads || term != g.ready.Load() {
		err := g.notLeader()
		return func() ([]command.Result, error) { return nil, err }
	}
	f := in.raft.Apply(build(), g.host.cfg.ElectionTimeout)
	return func() ([]command.Result, error) {
		err := in.await(f)
		in.noteRefusal(err, 3*g.host.cfg.ElectionTimeout)
		if err != nil {
			return nil, g.classify(err)
		}
		results, ok := f.Response().([]command.Result)
		if !ok {
			return nil, errors.Join(ErrUnknown, errNotApplied)
		}
		return results, nil
	}
}

// raisePause is how often WaitApplied looks.
const raisePause = 10 * time.Millisecond

// WaitApplied blocks until the entry at index is applied here, or known to be one
// that has no effect on the state. Errors: the context's, or ErrClosed.
func (g *Group) WaitApplied(ctx context.Context, index uint64) error {
	for {
		applied, raised := g.applier.applied.next()
		if applied >= index {
			return nil
		}
		if g.raiseApplied() >= index {
			return nil
		}
		select {
		case <-raised:
		// Entries without effect raise the mark only when somebody looks.
		case <-time.After(raisePause):
		case <-ctx.Done():
			return fmt.Errorf("wait for index %d of group %d: %w", index, g.id, ctx.Err())
		case <-g.stop:
			return ErrClosed
		}
	}
}

// raiseApplied passes the entries that follow the applied ones, are committed, and
// never reach the machine: those that a leader writes for itself.
func (g *Group) raiseApplied() uint64 {
	applied := g.applier.applied.load()
	// What the library reports was sent to the applier, not applied.
	sent := g.instance().raft.AppliedIndex()
	var entry raft.Log
	for applied < sent {
		if err := g.log.GetLog(applied+1, &entry); err != nil || reachesMachine(&entry) {
			break
		}
		applied++
	}
	g.applier.applied.raise(applied)
	return g.applier.applied.load()
}

// reachesMachine reports whether the library passes an entry on to the applier.
func reachesMachine(entry *raft.Log) bool {
	return entry.Type == raft.LogCommand || entry.Type == raft.LogConfiguration
}

// Checkpoint makes everything durable that is applied now, so that a restart has
// nothing to replay.
func (g *Group) Checkpoint(ctx context.Context) error {
	index, term := g.machine.Applied()
	if index <= g.machine.Flushed().Index {
		return nil
	}
	return g.machine.Checkpoint(ctx, fsm.Position{Index: index, Term: term})
}

// Snapshot checkpoints the state and truncates the log behind it. Nothing new to
// checkpoint is no error.
func (g *Group) Snapshot(ctx context.Context) error {
	in := g.instance()
	err := in.call(ctx, func() raft.Future { return in.raft.Snapshot() })
	if err == nil || errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	return fmt.Errorf("snapshot group %d: %w", g.id, err)
}
