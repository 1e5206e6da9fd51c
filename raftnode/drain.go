package raftnode

import (
	"context"
	"errors"
	"time"
)

// drainPoll is how often Drain looks whether a group got further.
const drainPoll = 5 * time.Millisecond

// Drain prepares the end of this node: it takes no new proposals any more (ErrBusy),
// waits for those under way, and hands every leadership to a voter that is caught
// up, where there is one. What could not be handed over by the end of ctx is left to
// elections, and the error names it.
func (h *Host) Drain(ctx context.Context) error {
	h.draining.Store(true)
	groups := h.Groups()
	errs := make(chan error, len(groups))
	for _, g := range groups {
		go func() { errs <- g.drain(ctx) }()
	}
	var all error
	for range groups {
		all = errors.Join(all, <-errs)
	}
	return all
}

func (g *Group) drain(ctx context.Context) error {
	for !g.batcher.idle() {
		select {
		case <-time.After(drainPoll):
		case <-ctx.Done():
			return ctx.Err()
		case <-g.stop:
			return nil
		}
	}
	if !g.IsLeader() || g.successor() == "" {
		return nil
	}
	return g.TransferLeadership(ctx, "")
}

// successor is the follower that is nearest to taking over; empty if none could.
func (g *Group) successor() ServerID {
	var best Follower
	conf := g.applier.current.Load()
	in := g.instance()
	for _, f := range g.followers(in, conf, in.raft.CurrentTerm()) {
		voter, _ := conf.find(f.ID)
		if voter && g.caughtUp(f.ID, transferLag) && (best.ID == "" || f.Match > best.Match) {
			best = f
		}
	}
	return best.ID
}
