package raftnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// Lags, in entries, up to which a follower counts as caught up: to get a vote, and
// to take over the leadership without a pause.
const (
	promoteLag  = 256
	transferLag = 16
)

// AddNonvoter adds a server that receives the log and has no vote. A server that is
// a member already, with or without a vote, stays as it is. It blocks until the
// change is committed. Errors: *NotLeaderError, ErrBusy and ErrConflict (nothing
// changed), ErrUnknown, or the context's error joined with ErrUnknown.
func (g *Group) AddNonvoter(ctx context.Context, id ServerID) error {
	return g.change(ctx, "add non-voter", id, func(r *raft.Raft, conf *configuration, timeout time.Duration) (start, error) {
		if _, member := conf.find(id); member {
			return nil, nil
		}
		return func() raft.Future { return r.AddNonvoter(id, raft.ServerAddress(id), conf.index, timeout) }, nil
	})
}

// AddVoter gives a non-voter its vote. A voter stays one. Errors are those of
// AddNonvoter, and ErrNotCaughtUp: a voter without the log only raises the quorum.
func (g *Group) AddVoter(ctx context.Context, id ServerID) error {
	return g.change(ctx, "add voter", id, func(r *raft.Raft, conf *configuration, timeout time.Duration) (start, error) {
		voter, member := conf.find(id)
		switch {
		case voter:
			return nil, nil
		case !member, !g.caughtUp(id, promoteLag):
			return nil, ErrNotCaughtUp
		}
		return func() raft.Future { return r.AddVoter(id, raft.ServerAddress(id), conf.index, timeout) }, nil
	})
}

// RemoveServer takes a server out of the group; one that is no member stays out. A
// leader may remove itself and steps down when that is committed. Errors are those
// of AddNonvoter, and ErrLastVoter.
func (g *Group) RemoveServer(ctx context.Context, id ServerID) error {
	return g.change(ctx, "remove server", id, func(r *raft.Raft, conf *configuration, timeout time.Duration) (start, error) {
		voter, member := conf.find(id)
		switch {
		case !member:
			return nil, nil
		case voter && conf.voters() == 1:
			return nil, ErrLastVoter
		}
		return func() raft.Future { return r.RemoveServer(id, conf.index, timeout) }, nil
	})
}

// start begins a change with the library, and blocks until it is taken.
type start func() raft.Future

// change carries out what decide makes of the present configuration; nil means
// that there is nothing to do.
func (g *Group) change(ctx context.Context, op string, id ServerID,
	decide func(*raft.Raft, *configuration, time.Duration) (start, error)) error {
	if !g.IsLeader() {
		return g.notLeader()
	}
	in := g.instance()
	// The change is bound to the configuration that it was decided on: the library
	// refuses it if another change came first.
	start, err := decide(in.raft, g.applier.current.Load(), g.host.cfg.ElectionTimeout)
	if err == nil && start != nil {
		err = in.call(ctx, start)
		if err != nil && strings.HasPrefix(err.Error(), "configuration changed since") {
			err = errors.Join(ErrConflict, err)
		} else {
			err = g.classify(err)
		}
	}
	if err != nil {
		return fmt.Errorf("%s %s, group %d: %w", op, id, g.id, err)
	}
	return nil
}

// TransferLeadership hands the leadership to a voter that is caught up, the nearest
// one if to is empty, at most once in a term: a second attempt in vain can leave the
// library refusing all entries (hashicorp/raft issue 696). It blocks until the
// leadership is gone; who wins the election is not certain. Errors: *NotLeaderError,
// ErrNotVoter, ErrNotCaughtUp, ErrTransferred, or what the attempt failed with.
func (g *Group) TransferLeadership(ctx context.Context, to ServerID) error {
	term, leads := g.Leads()
	if !leads {
		return g.notLeader()
	}
	in := g.instance()
	if to == "" {
		to = g.successor()
	}
	if err := g.canLead(to); err != nil {
		return fmt.Errorf("transfer leadership of group %d to %s: %w", g.id, cmp.Or(to, "any voter"), err)
	}
	if g.transferredTerm.Swap(term) == term {
		return fmt.Errorf("transfer leadership of group %d to %s: %w", g.id, to, ErrTransferred)
	}
	in.transferring.Store(true)
	defer in.transferring.Store(false)
	g.logger.Info("handing over leadership", "node", to, "term", term)
	err := in.call(ctx, func() raft.Future {
		return in.raft.LeadershipTransferToServer(to, raft.ServerAddress(to))
	})
	if err != nil {
		return fmt.Errorf("transfer leadership of group %d to %s: %w", g.id, to, err)
	}
	return nil
}

// canLead says why a server cannot take over the leadership. None at all is one that
// is not caught up.
func (g *Group) canLead(to ServerID) error {
	if to == "" {
		return ErrNotCaughtUp
	}
	if voter, _ := g.applier.current.Load().find(to); !voter || to == g.host.cfg.ID {
		return ErrNotVoter
	}
	if !g.caughtUp(to, transferLag) {
		return ErrNotCaughtUp
	}
	return nil
}

// caughtUp reports whether a follower answered recently and lacks at most lag
// entries.
func (g *Group) caughtUp(id ServerID, lag uint64) bool {
	in := g.instance()
	f, known := in.transport.peers.follower(id, in.raft.CurrentTerm())
	return known && f.Match+lag >= in.raft.LastIndex() &&
		time.Since(f.Contact) < g.host.cfg.HeartbeatTimeout/2
}
