package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
)

// errLeft ends the loops of a node that was removed at its own wish.
var errLeft = errors.New("node has left the cluster")

// keep runs the loops of a member until ctx ends, the node has left, or one fails.
func (a *Agent) keep(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, loop := range []func(context.Context) error{
		a.follow, a.govern, a.reconcile, a.pulse, a.balance, a.watchLeaders,
	} {
		group.Go(func() error { return loop(ctx) })
	}
	err := group.Wait()
	if errors.Is(err, errLeft) {
		return nil
	}
	return err
}

// watchLeaders passes changes of leadership on to all loops.
func (a *Agent) watchLeaders(ctx context.Context) error {
	for {
		select {
		case <-a.deps.Host.LeaderChanges():
			a.wake()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follow adopts what changes in the cluster documents: addresses, tombstones, and
// the groups that this node holds.
func (a *Agent) follow(ctx context.Context) error {
	for {
		if err := a.look(); err != nil {
			return err
		}
		timer := time.NewTimer(a.cfg.Timing.StepInterval)
		select {
		case <-timer.C:
		case <-a.wakes[loopFollow]:
		case err := <-a.fatal:
			timer.Stop()
			return a.ending(err)
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// look compares the documents with what this node does, once.
func (a *Agent) look() error {
	g, ok := a.deps.Host.Group(raftnode.SystemGroup)
	if !ok {
		// It was damaged. It starts here or where it was repaired.
		return a.startGroup(raftnode.SystemGroup, nil)
	}
	state := documents(g)
	if state == nil {
		return nil
	}
	if state != a.State() {
		if err := a.adopt(state); err != nil {
			return err
		}
	}
	self, known := state.Member(string(a.id))
	if known && self.Status == system.StatusRemoved {
		return a.ending(&RefusedError{Reason: "this node was removed from the cluster"})
	}
	if err := a.holdGroups(state); err != nil {
		return err
	}
	if known && self.Status != system.StatusJoining && !a.caught.reached() && a.caught.look(a.deps.Host, a.peers, state, a.id) {
		a.log.Info("caught up with the cluster")
		a.notify()
	}
	a.setPhase(a.phaseIn(self))
	return nil
}

// ending is how Run ends for the reason err: a node that was told to leave in this
// life of the process is not refused, it has left.
func (a *Agent) ending(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var refused *RefusedError
	if errors.As(err, &refused) && a.leaving {
		return errLeft
	}
	return err
}

func (a *Agent) phaseIn(self system.Member) Phase {
	switch {
	case self.Status == system.StatusLeaving:
		return PhaseLeaving
	case self.Status == 0:
		return PhaseJoining
	case !a.caught.reached():
		return PhaseCatchingUp
	default:
		return PhaseMember
	}
}

// adopt makes new documents the ones that this node acts on.
func (a *Agent) adopt(state *system.State) error {
	addrs := peerAddrs{}
	for _, m := range state.Members {
		id := raftnode.ServerID(m.ID)
		switch {
		case id == a.id:
		case m.Status == system.StatusRemoved:
			a.deps.Mux.Refuse(id)
			a.peers.forget(id)
		default:
			addrs[id] = m.PeerAddr
		}
	}
	a.learnAddrs(addrs)
	if !maps.Equal(addrs, a.knownAddrs()) {
		if err := a.setAddrs(addrs); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = state
	a.metrics.adopted(state)
	a.notifyLocked()
	return nil
}

func (a *Agent) notify() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notifyLocked()
}

// holdGroups starts the groups that the table places here, and ends those that
// have let this replica go.
func (a *Agent) holdGroups(state *system.State) error {
	for i, p := range state.Table.Groups {
		group := uint32(i) + 1
		_, running := a.deps.Host.Group(group)
		placed := contains(p.Voters, a.id)
		switch {
		case placed && !running:
			if err := a.startGroup(group, nil); err != nil {
				return err
			}
		case !placed && running && a.released(group, state.Table.Version):
			a.log.Info("replica has moved away, removing it", "group", group)
			if err := a.deps.Host.Stop(group, true); err != nil {
				return fmt.Errorf("remove replica of group %d: %w", group, err)
			}
		}
	}
	return nil
}

// released reports whether the leader of group, acting on this version of the table
// or a newer one, has this node no more in its configuration. From then on it will
// not come back without another table, so the replica's votes are worth nothing.
func (a *Agent) released(group, table uint32) bool {
	g, ok := a.deps.Host.Group(group)
	if !ok {
		return false
	}
	_, term := g.Leader()
	for id, p := range a.peers.all() {
		r, ok := p.report(group)
		if ok && r.Leader == id && len(r.Voters) > 0 && r.Term >= term && p.ping.Table >= table &&
			!containsID(r.Voters, a.id) && !containsID(r.Nonvoters, a.id) {
			return true
		}
	}
	return false
}

// startGroup runs the replica of a group on this node.
func (a *Agent) startGroup(group uint32, first []raft.Server) error {
	if _, running := a.deps.Host.Group(group); running {
		return nil
	}
	_, err := a.deps.Host.Start(group, first)
	if errors.Is(err, raftnode.ErrDamaged) || errors.Is(err, raftnode.ErrRunning) {
		return nil // whoever repairs it starts it, and may just have done so
	}
	if err != nil {
		return fmt.Errorf("start replica: %w", err)
	}
	a.log.Info("replica started", "group", group)
	a.wake()
	return nil
}
