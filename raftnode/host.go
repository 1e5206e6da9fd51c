package raftnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Host runs the groups of this node. Create it with NewHost, end it with Close.
type Host struct {
	cfg     Config
	deps    Deps
	logger  hclog.Logger
	sender  *sender
	metrics *metrics

	// lifecycle has a token while a group starts or stops. It is a channel because
	// that can take long, and a mutex would hide the waiting from simulated time.
	lifecycle chan struct{}

	mu     sync.RWMutex // protects groups, damaged and closed
	groups map[uint32]*Group
	// damaged are the replicas that are out of service; none of them is in groups.
	damaged map[uint32]Damage
	closed  bool

	// changes has a token when leadership may have changed in some group.
	changes chan struct{}
	// draining is set when no new proposals are taken; it stays.
	draining atomic.Bool
	// failure is why the process must stop, once that is so; stalled tells that the
	// log takes too long to lead with.
	failure atomic.Pointer[error]
	stalled atomic.Bool

	stop    chan struct{} // closed by Close
	running sync.WaitGroup
}

// NewHost makes a Host without groups. It panics when cfg is invalid or a required
// dependency is missing: that is a fault of the program, see Config.Validate.
func NewHost(cfg Config, deps Deps) *Host {
	if err := cfg.Validate(); err != nil {
		panic(fmt.Sprintf("raftnode: configuration: %v", err))
	}
	h := &Host{
		cfg:       cfg,
		deps:      deps,
		logger:    deps.Logger.Named("raftnode"),
		sender:    newSender(cfg.SnapshotRate),
		lifecycle: make(chan struct{}, 1),
		groups:    make(map[uint32]*Group),
		damaged:   make(map[uint32]Damage),
		changes:   make(chan struct{}, 1),
		stop:      make(chan struct{}),
	}
	h.metrics = newMetrics(h)
	h.running.Go(h.watch)
	return h
}

// Start runs the replica of a group on this node: from its log and its flushed
// state if it has any, else with the given first configuration, which must be the
// same on all servers in it, else waiting for a leader to add it. It blocks while
// it replays what is known to be committed. Errors: ErrRunning, ErrClosed, ErrDamaged,
// ErrCorrupt, or those of the log and the state.
func (h *Host) Start(group uint32, first []raft.Server) (*Group, error) {
	h.lifecycle <- struct{}{}
	defer func() { <-h.lifecycle }()
	h.mu.RLock()
	closed, running := h.closed, h.groups[group] != nil
	h.mu.RUnlock()
	switch {
	case closed:
		return nil, ErrClosed
	case running:
		return nil, fmt.Errorf("start group %d: %w", group, ErrRunning)
	case h.IsDamaged(group):
		return nil, fmt.Errorf("start group %d: %w", group, ErrDamaged)
	}
	g, err := h.open(group, first)
	if err != nil {
		return nil, h.startFailed(group, fmt.Errorf("start group %d: %w", group, err))
	}
	h.mu.Lock()
	h.groups[group] = g
	h.mu.Unlock()
	g.supervising.Go(g.supervise)
	h.signal()
	return g, nil
}

// Group returns the replica of a group, if it runs here.
func (h *Host) Group(id uint32) (*Group, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	g, ok := h.groups[id]
	return g, ok
}

// Groups returns the running replicas in the order of their ids.
func (h *Host) Groups() []*Group {
	h.mu.RLock()
	defer h.mu.RUnlock()
	list := make([]*Group, 0, len(h.groups))
	for _, g := range h.groups {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *Group) int { return cmp.Compare(a.id, b.id) })
	return list
}

// Propose queues commands for one log entry of a group. It does not block. Errors
// mean that nothing was appended: ErrNotHere, *NotLeaderError, ErrBusy, ErrTooLarge.
// The commands must not be modified until the proposal is answered.
func (h *Host) Propose(group uint32, cmds []Command) (Proposal, error) {
	g, ok := h.Group(group)
	if !ok {
		return nil, ErrNotHere
	}
	return g.Propose(cmds)
}

// LeaderChanges has a token after leader, term or role changed in some group, as
// seen here, or this node began or ceased to accept proposals. Many changes may
// share a token. For one consumer; never closed.
func (h *Host) LeaderChanges() <-chan struct{} { return h.changes }

func (h *Host) signal() {
	select {
	case h.changes <- struct{}{}:
	default:
	}
}

// Stop ends the replica of a group on this node; the others do not hear of it. With
// drop, its log and its state are deleted too: only when it was removed from the
// group's configuration. It blocks until everything has ended. A group that does
// not run is only dropped. Errors are those of the log and the state.
func (h *Host) Stop(group uint32, drop bool) error {
	h.lifecycle <- struct{}{}
	defer func() { <-h.lifecycle }()
	h.mu.Lock()
	g := h.groups[group]
	delete(h.groups, group)
	h.mu.Unlock()
	var err error
	if g != nil {
		err = g.close()
		h.signal()
	}
	if !drop {
		return err
	}
	return errors.Join(err, h.drop(group))
}

// drop deletes the log first: a state without a log is a valid replica that lags, a
// log without its state is not.
func (h *Host) drop(group uint32) error {
	if err := h.deps.Log.DropGroup(group); err != nil {
		return fmt.Errorf("drop log of group %d: %w", group, err)
	}
	if h.deps.DropMachine == nil {
		return nil
	}
	if err := h.deps.DropMachine(group); err != nil {
		return fmt.Errorf("drop state of group %d: %w", group, err)
	}
	return nil
}

// Close ends all groups and waits for every goroutine. Nothing acknowledged is lost,
// with or without Drain before; leaderships are not handed over. It waits for a log
// write that hangs. The log and the state's storage are closed afterwards, by their
// owner. Calling it again does nothing.
func (h *Host) Close() error {
	h.lifecycle <- struct{}{}
	defer func() { <-h.lifecycle }()
	h.mu.Lock()
	groups := h.groups
	closed := h.closed
	h.groups, h.closed = make(map[uint32]*Group), true
	h.mu.Unlock()
	if closed {
		return nil
	}
	close(h.stop)
	h.running.Wait()
	errs := make(chan error, len(groups))
	for _, g := range groups {
		go func() { errs <- g.close() }()
	}
	var all error
	for range groups {
		all = errors.Join(all, <-errs)
	}
	h.metrics.close()
	return all
}

// fail stops this node from acting as a leader and tells the owner why it must end.
func (h *Host) fail(err error) {
	if !h.failure.CompareAndSwap(nil, &err) {
		h.logger.Error("failed again after the first failure", "err", err)
		return
	}
	h.logger.Error("this node cannot go on", "err", err)
	h.signal()
	h.deps.Fatal(err)
}

// open prepares a replica and starts it.
func (h *Host) open(id uint32, first []raft.Server) (*Group, error) {
	machine, err := h.deps.NewMachine(id)
	if err != nil {
		return nil, fmt.Errorf("open state machine: %w", err)
	}
	g := h.newGroup(id, machine)
	if err := g.resume(first); err != nil {
		g.cancel()
		g.batcher.refuse()
		g.batcher.wait()
		return nil, errors.Join(err, machine.Close())
	}
	return g, nil
}

func (h *Host) newGroup(id uint32, machine StateMachine) *Group {
	g := &Group{
		id: id, host: h, machine: machine,
		logger: h.logger.With("group", id),
		log:    h.deps.Log.Group(id),
		stop:   make(chan struct{}),
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.applier = &applier{
		group: id, machine: machine, ctx: g.ctx, fatal: func(err error) { h.applyFailed(id, err) },
		hint: g.log.SetCommitHint, progressed: g.installs.progressed,
	}
	g.snapshots = &snapshotStore{
		group: id, machine: machine, ctx: g.ctx, sender: h.sender, spool: newSpool(h.cfg.DataDir, id),
	}
	g.batcher = &batcher{config: h.cfg, clock: h.deps.Clock, append: g.append, observe: h.metrics.entry(id)}
	g.batcher.start()
	return g
}
