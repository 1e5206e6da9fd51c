package partitions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/raftnode"
)

// The pause before commands are offered again grows from retryFirst to retryLast.
const (
	retryFirst = 2 * time.Millisecond
	retryLast  = 100 * time.Millisecond
)

// lane carries the commands of one group from this node to the group's leader. A
// few requests are under way at a time; what comes meanwhile gathers.
type lane struct {
	router *Router
	group  uint32

	// mu protects the fields below.
	mu       sync.Mutex
	queue    []*part
	underway int
	pause    time.Duration
	paused   bool
}

// submit queues p. The caller's write bounds how long it is retried.
func (l *lane) submit(p *part) {
	l.mu.Lock()
	l.queue = append(l.queue, p)
	l.mu.Unlock()
	l.pump()
}

// pump starts requests while there is room.
func (l *lane) pump() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.paused && l.underway < l.router.cfg.LaneRequests && len(l.queue) > 0 {
		batch := l.takeLocked()
		if len(batch) == 0 {
			continue
		}
		l.underway++
		if !l.router.spawn(func() { l.run(batch) }) {
			l.underway--
			return // closed: the callers' deadlines end their writes
		}
	}
}

// takeLocked removes the parts of the next request from the queue: parts of one
// mode, up to the limit of commands, at least one. Parts whose caller has given
// up are dropped.
func (l *lane) takeLocked() []*part {
	cfg := &l.router.cfg
	var batch []*part
	ops, bytes, n := 0, 0, 0
	for _, p := range l.queue {
		tooMuch := ops+len(p.cmds) > cfg.RequestOps || bytes+p.bytes > cfg.RequestBytes
		if len(batch) > 0 && (tooMuch || p.handover != batch[0].handover) {
			break
		}
		n++
		if !p.write.begin() {
			continue
		}
		batch = append(batch, p)
		ops, bytes = ops+len(p.cmds), bytes+p.bytes
	}
	clear(l.queue[:n])
	l.queue = l.queue[n:]
	if len(l.queue) == 0 {
		l.queue = nil
	}
	return batch
}

// run offers one request to the leader and settles its parts.
func (l *lane) run(batch []*part) {
	cmds := batch[0].cmds
	if len(batch) > 1 {
		cmds = nil
		for _, p := range batch {
			cmds = append(cmds, p.cmds...)
		}
	}
	results, err := l.router.offer(l.group, cmds, batch[0].handover)
	if err == nil && len(results) != len(cmds) {
		err = fmt.Errorf("%w: %d results for %d commands", raftnode.ErrUnknown, len(results), len(cmds))
	}
	if err != nil {
		l.retry(batch, err)
		return
	}
	for _, p := range batch {
		p.write.decide(p, results[:len(p.cmds)])
		results = results[len(p.cmds):]
	}
	l.mu.Lock()
	l.underway--
	l.pause = 0
	l.mu.Unlock()
	l.pump()
}

// retry puts the parts back at the head of the queue and pauses the lane.
func (l *lane) retry(batch []*part, cause error) {
	appended := !notAppended(cause)
	for _, p := range batch {
		p.write.back(appended, cause)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underway--
	l.queue = append(batch, l.queue...)
	l.pause = min(max(2*l.pause, retryFirst), retryLast)
	if l.paused {
		return
	}
	l.paused = true
	time.AfterFunc(l.pause, func() {
		l.mu.Lock()
		l.paused = false
		l.mu.Unlock()
		l.pump()
	})
}

// offer brings cmds to the leader of group once. An error for which notAppended
// holds promises that nothing was appended; any other leaves the outcome unknown.
func (r *Router) offer(group uint32, cmds []raftnode.Command, handover bool) ([]command.Result, error) {
	leader := r.leader(group)
	switch leader {
	case "":
		return nil, &raftnode.NotLeaderError{Group: group}
	case r.cfg.Self:
		return r.proposeHere(r.ctx, group, cmds, handover)
	default:
		return r.forward(leader, group, cmds, handover)
	}
}

// proposeHere proposes cmds on this node, which should lead group. With handover
// it returns once they are queued and sees them through in the background.
func (r *Router) proposeHere(ctx context.Context, group uint32, cmds []raftnode.Command, handover bool) ([]command.Result, error) {
	if err := r.deps.Admit(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", raftnode.ErrBusy, err)
	}
	cmds, err := r.admit(cmds)
	if err != nil {
		return nil, err
	}
	proposal, err := r.deps.Groups.Propose(group, cmds)
	if err != nil {
		return nil, err
	}
	if !handover {
		return proposal.Wait(ctx)
	}
	r.spawn(func() { r.adopt(group, cmds, proposal) })
	return make([]command.Result, len(cmds)), nil
}

// adopt sees commands through that were acknowledged when they were queued: they
// are offered again, wherever the leader is, until they are committed or the time
// for it ends.
func (r *Router) adopt(group uint32, cmds []raftnode.Command, proposal raftnode.Proposal) {
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.AdoptTimeout)
	defer cancel()
	if _, err := proposal.Wait(ctx); err == nil || ctx.Err() != nil {
		return
	}
	w := &write{ctx: ctx, done: make(chan struct{}), results: make([]command.Result, len(cmds))}
	p := &part{write: w, cmds: cmds, ops: make([]int, len(cmds))}
	for i := range p.ops {
		p.ops[i] = i
	}
	w.expect(1)
	r.lane(group).submit(p)
	if err := w.wait(ctx, r.cfg.AdoptTimeout); err != nil && !errors.Is(err, context.Canceled) {
		r.log.Warn("writes acknowledged at MEMORY were not confirmed", "group", group, "ops", len(cmds), "err", err)
	}
}
