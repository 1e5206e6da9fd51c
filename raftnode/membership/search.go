package membership

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

// searchTargets are the seeds to ask for members that are silent: they, or this
// node, may have new addresses. Addresses of members that answer are left out.
func (a *Agent) searchTargets(now time.Time) []string {
	reached := a.reachable(now)
	state := a.State()
	silent := state == nil
	if state != nil {
		for _, m := range state.Members {
			_, ok := reached[raftnode.ServerID(m.ID)]
			silent = silent || !ok && m.Status != system.StatusRemoved
		}
	}
	if !silent {
		return nil
	}
	known := map[string]bool{}
	for _, addr := range reached {
		known[addr] = true
	}
	var targets []string
	for _, text := range a.former.targets(now) {
		if !known[text] {
			targets = append(targets, text)
		}
	}
	return targets
}

// search asks the targets who they are and enters the addresses that are news.
func (a *Agent) search(ctx context.Context, targets []string) {
	for _, r := range a.hello(ctx, targets) {
		if r.err != nil {
			a.log.Trace("seed did not help", "addr", r.target, "err", r.err)
			a.metRefusal(r.err)
			continue
		}
		if r.hello.ClusterID != a.record().ClusterID {
			continue
		}
		if r.peer.ID != a.id {
			a.deps.Mux.SetPeerAddr(r.peer.ID, r.hello.Node.Addr)
		}
		a.learnAddrs(r.hello.Members)
	}
}

// learnAddrs enters addresses of members that have not been reached lately.
func (a *Agent) learnAddrs(addrs peerAddrs) {
	for id, addr := range addrs {
		if id == a.id || addr == "" {
			continue
		}
		if p, met := a.peers.get(id); met && time.Since(p.at) < a.cfg.Timing.SuspectAfter {
			continue
		}
		if known, _ := a.deps.Mux.PeerAddr(id); known != addr {
			a.deps.Mux.SetPeerAddr(id, addr)
		}
	}
}

// knownAddrs are the members' addresses that were stored last.
func (a *Agent) knownAddrs() peerAddrs {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.addrs
}

// Peers lists the other members that this node knows of, also while it has no documents.
func (a *Agent) Peers() []raftnode.ServerID {
	return slices.Sorted(maps.Keys(a.knownAddrs()))
}

// setAddrs makes new addresses durable.
func (a *Agent) setAddrs(addrs peerAddrs) error {
	if err := saveDocument(a.deps.Identity, peersDocument, addrs); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addrs = addrs
	return nil
}

// welcome is how a member is received by the others.
type welcome struct {
	met      time.Time
	refusals refusalWatch
}

// metFriend notes that a member answered.
func (a *Agent) metFriend() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.welcome = welcome{met: time.Now()}
}

// metRefusal judges a refusal. Being removed is final; anything else only when no
// member answers for long.
func (a *Agent) metRefusal(err error) {
	var refused *mux.RefusedError
	if errors.As(err, &refused) && refused.Code == mux.RefusedRemoved {
		a.stop(&RefusedError{Reason: "this node was removed from the cluster", Err: err})
		return
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if patience := a.cfg.Timing.RefusalPatience; now.Sub(a.welcome.met) >= patience {
		a.stop(a.welcome.refusals.look([]answer{{err: err}}, patience, now))
	}
}

// stop ends Run with err, unless that is nil. The first reason counts.
func (a *Agent) stop(err error) {
	if err == nil {
		return
	}
	select {
	case a.fatal <- err:
	default:
	}
}
