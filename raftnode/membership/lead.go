package membership

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
)

// promoteLag is how many entries a replica may be behind its leader and still count
// as caught up.
const promoteLag = 256

// ledGroups remembers what this node is doing to the groups that it leads. It is
// safe for concurrent use.
type ledGroups struct {
	mu sync.Mutex // protects the fields below
	// busy are the groups with a change under way.
	busy map[uint32]bool
	// since is when this node was first seen to lead a group, and in which term.
	since map[uint32]ledSince
	// stuck is the term in which a group's leadership cannot be handed over again.
	stuck map[uint32]uint64
}

type ledSince struct {
	term uint64
	at   time.Time
}

func newLedGroups() *ledGroups {
	return &ledGroups{busy: map[uint32]bool{}, since: map[uint32]ledSince{}, stuck: map[uint32]uint64{}}
}

// begin claims a group for a change; false while another one is under way.
func (l *ledGroups) begin(group uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy[group] {
		return false
	}
	l.busy[group] = true
	return true
}

func (l *ledGroups) end(group uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, group)
}

// tried notes that handing over group failed for the rest of term.
func (l *ledGroups) tried(group uint32, term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stuck[group] = term
}

func (l *ledGroups) isStuck(group uint32, term uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stuck[group] == term
}

// led is how long this node has been seen to lead group in term.
func (l *ledGroups) led(group uint32, term uint64, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since[group].term != term {
		l.since[group] = ledSince{term, now}
	}
	return now.Sub(l.since[group].at)
}

// reconcile brings the groups that this node leads to where the documents want
// them, one change of a group at a time, until ctx ends.
func (a *Agent) reconcile(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		if state := a.State(); state != nil {
			for _, g := range a.deps.Host.Groups() {
				act := a.consider(state, g)
				if act.kind == actNone || !a.led.begin(g.ID()) {
					continue
				}
				running.Go(func() {
					defer a.wake()
					defer a.led.end(g.ID())
					a.perform(ctx, g, act)
				})
			}
		}
		if err := sleep(ctx, a.cfg.Timing.StepInterval, a.wakes[loopReconcile]); err != nil {
			return err
		}
	}
}

// consider is the next change to a group, none unless this node leads it.
func (a *Agent) consider(state *system.State, g *raftnode.Group) action {
	s := g.Status()
	if !s.Ready {
		return action{}
	}
	a.led.led(s.Group, s.Term, time.Now())
	have := replicas{
		self: string(a.id), voters: texts(s.Voters), followers: texts(s.Nonvoters),
		health: a.health(state, s), stuck: a.led.isStuck(s.Group, s.Term),
	}
	if s.Group == raftnode.SystemGroup {
		return nextAction(systemTarget(state.Members, a.candidates(state), have.voters), have)
	}
	return nextAction(dataTarget(state, s.Group), have)
}

// health is what this node, as the leader with status s, knows about the replicas.
func (a *Agent) health(state *system.State, s raftnode.Status) map[string]health {
	now := time.Now()
	all := map[string]health{}
	for _, m := range state.Members {
		p, met := a.peers.get(raftnode.ServerID(m.ID))
		if !met || now.Sub(p.at) >= a.cfg.Timing.SuspectAfter {
			continue
		}
		_, runs := p.report(s.Group)
		all[m.ID] = health{recent: true, running: runs}
	}
	for _, f := range s.Followers {
		h := all[string(f.ID)]
		h.caughtUp = now.Sub(f.Contact) < a.cfg.Timing.SuspectAfter && f.Match+promoteLag >= s.LastLog
		all[string(f.ID)] = h
	}
	return all
}

// perform carries out one change. Failures are normal where leadership moves, and
// decided anew.
func (a *Agent) perform(ctx context.Context, g *raftnode.Group, act action) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timing.ChangeTimeout)
	defer cancel()
	id := raftnode.ServerID(act.id)
	var err error
	switch act.kind {
	case actAdd:
		err = g.AddNonvoter(ctx, id)
	case actPromote:
		err = g.AddVoter(ctx, id)
	case actRemove:
		err = g.RemoveServer(ctx, id)
	case actHandOver:
		_, term := g.Leader()
		if err = g.TransferLeadership(ctx, id); errors.Is(err, raftnode.ErrTransferred) {
			a.led.tried(g.ID(), term)
		}
	default:
		return
	}
	a.metrics.changed(act.kind, err)
	switch log := a.log.With("group", g.ID(), "change", act.kind, "node", act.id); {
	case err == nil:
		log.Info("group changed")
		return
	case premature(err) || ctx.Err() != nil:
		log.Debug("group not changed", "err", err)
	default:
		log.Warn("group not changed", "err", err)
	}
	// What failed gets the time of a step before it is tried again. An end of ctx
	// ends the loops as well.
	_ = sleep(ctx, a.cfg.Timing.StepInterval, nil)
}

// premature reports whether a change failed only because it was decided on news
// that are no more true, and was not begun.
func premature(err error) bool {
	var notLeader *raftnode.NotLeaderError
	return errors.As(err, &notLeader) || errors.Is(err, raftnode.ErrNotCaughtUp) || errors.Is(err, raftnode.ErrNotVoter) ||
		errors.Is(err, raftnode.ErrTransferred) || errors.Is(err, raftnode.ErrConflict)
}

// texts converts server ids to their texts.
func texts(ids []raftnode.ServerID) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = string(id)
	}
	return list
}
