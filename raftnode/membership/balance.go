package membership

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
)

// balance hands leaderships to the voters that the table prefers, one at a time,
// until ctx ends. Nothing moves for a while after a start or an election: a
// leadership that moves too often serves nobody.
func (a *Agent) balance(ctx context.Context) error {
	t := a.cfg.Timing
	for {
		pause := t.BalanceInterval*7/10 + rand.N(t.BalanceInterval*6/10)
		if err := sleep(ctx, pause, nil); err != nil {
			return err
		}
		state := a.State()
		if state == nil || time.Since(a.started) < t.SettleTime {
			continue
		}
		for _, g := range a.deps.Host.Groups() {
			to, due := a.successor(state, g)
			if !due || !a.led.begin(g.ID()) {
				continue
			}
			a.perform(ctx, g, action{actHandOver, to})
			a.led.end(g.ID())
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
}

// successor is the voter that should lead g instead of this node, if it can now.
func (a *Agent) successor(state *system.State, g *raftnode.Group) (id string, due bool) {
	s := g.Status()
	if !s.Ready || s.Group == raftnode.SystemGroup || int(s.Group) > len(state.Table.Groups) {
		return "", false
	}
	if a.led.led(s.Group, s.Term, time.Now()) < a.cfg.Timing.SettleTime {
		return "", false
	}
	to := state.Table.Groups[s.Group-1].Preferred
	m, known := state.Member(to)
	if to == string(a.id) || !known || m.Status != system.StatusActive || !containsID(s.Voters, raftnode.ServerID(to)) {
		return "", false
	}
	p, met := a.peers.get(raftnode.ServerID(to))
	if h := a.health(state, s)[to]; !met || !h.recent || !h.caughtUp || p.ping.Draining {
		return "", false
	}
	return to, true
}
