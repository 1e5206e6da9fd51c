package membership

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

// pulse exchanges pings with the other members until ctx ends, at most one with
// each at a time, and looks for members at new addresses.
func (a *Agent) pulse(ctx context.Context) error {
	var busy sync.Map // of raftnode.ServerID: a ping is under way
	var running sync.WaitGroup
	defer running.Wait()
	searching := make(chan struct{}, 1)
	for {
		a.peers.detector.look(time.Now())
		for _, id := range a.pingTargets() {
			if _, already := busy.LoadOrStore(id, true); already {
				continue
			}
			running.Go(func() {
				defer busy.Delete(id)
				a.exchange(ctx, id)
			})
		}
		if targets := a.searchTargets(time.Now()); len(targets) > 0 {
			select {
			case searching <- struct{}{}:
				running.Go(func() {
					a.search(ctx, targets)
					<-searching
				})
			default:
			}
		}
		if err := a.pulsePause(ctx); err != nil {
			return err
		}
	}
}

// pulsePause waits for the next round. A change of leaders makes it start early but
// not at once, so that many changes share a round.
func (a *Agent) pulsePause(ctx context.Context) error {
	interval := a.cfg.Timing.PingInterval
	if a.unsettled() {
		interval = min(interval, a.cfg.Timing.StepInterval)
	}
	short := min(interval, a.cfg.Timing.StepInterval/2)
	if err := sleep(ctx, short, nil); err != nil {
		return err
	}
	return sleep(ctx, interval-short, a.wakes[loopPulse])
}

// unsettled reports whether a member is on its way in or out, or this node does not
// know the members yet: then news are worth more exchanges.
func (a *Agent) unsettled() bool {
	state := a.State()
	if state == nil {
		return true
	}
	for _, m := range state.Members {
		if m.Status == system.StatusJoining || m.Status == system.StatusLeaving {
			return true
		}
	}
	return false
}

// pingTargets are the other members.
func (a *Agent) pingTargets() []raftnode.ServerID {
	var targets []raftnode.ServerID
	state := a.State()
	if state == nil {
		for id := range a.knownAddrs() {
			targets = append(targets, id)
		}
		return targets
	}
	for _, m := range state.Members {
		if id := raftnode.ServerID(m.ID); id != a.id && m.Status != system.StatusRemoved {
			targets = append(targets, id)
		}
	}
	return targets
}

// exchange pings one member and reacts to how it answers.
func (a *Agent) exchange(ctx context.Context, id raftnode.ServerID) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timing.CallTimeout)
	defer cancel()
	_, err := a.ping(ctx, id)
	a.metrics.pinged(err)
	if err == nil {
		a.metFriend()
		return
	}
	a.log.Trace("no answer to ping", "node", id, "err", err)
	a.metRefusal(err)
}

// ping exchanges states with a peer.
func (a *Agent) ping(ctx context.Context, id raftnode.ServerID) (pingMessage, error) {
	body, err := a.deps.Mux.Call(ctx, id, methodPing, encode(a.describe()))
	if err != nil {
		return pingMessage{}, err
	}
	msg, err := decode[pingMessage](body)
	if err == nil && msg.ID != id {
		err = errors.New("ping was answered by " + string(msg.ID))
	}
	if err != nil {
		return pingMessage{}, err
	}
	a.peers.update(msg, time.Now())
	return msg, nil
}

func (a *Agent) handlePing(_ context.Context, from mux.Peer, body []byte) ([]byte, error) {
	msg, err := decode[pingMessage](body)
	if err != nil {
		return nil, err
	}
	switch {
	case msg.ID == "" || msg.ID != from.ID:
		return nil, &mux.RemoteError{Code: codeMalformed, Text: "a node can only speak for itself"}
	case a.record().ClusterID == "":
		return nil, &mux.RemoteError{Code: codeNotReady, Text: "not a member yet"}
	}
	a.peers.update(msg, time.Now())
	return encode(a.describe()), nil
}

// describe is what this node tells other members about itself.
func (a *Agent) describe() pingMessage {
	now := time.Now()
	msg := pingMessage{
		ID: a.id, Addr: a.deps.Mux.Addr(), ClientURL: a.cfg.ClientURL,
		HeardMillis: map[raftnode.ServerID]int64{},
	}
	a.mu.Lock()
	msg.Draining = a.draining
	if a.state != nil {
		msg.Table = a.state.Table.Version
	}
	a.mu.Unlock()
	for id, p := range a.peers.all() {
		msg.HeardMillis[id] = now.Sub(p.at).Milliseconds()
	}
	for _, g := range a.deps.Host.Groups() {
		s := g.Status()
		r := groupReport{Group: s.Group, Term: s.Term, Leader: s.Leader, Commit: s.CommitIndex, Applied: s.AppliedIndex}
		if s.Role == raft.Leader {
			r.Voters, r.Nonvoters = s.Voters, s.Nonvoters
		}
		msg.Groups = append(msg.Groups, r)
	}
	return msg
}
