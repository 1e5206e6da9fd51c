package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/raftnode/membership/genesis"
	"github.com/quorate/quorate/raftnode/mux"
)

// answer is what was found at one address.
type answer struct {
	target string
	peer   mux.Peer
	hello  helloMessage
	err    error
}

// hello asks the nodes at all targets who they are, at the same time, and returns
// their answers in order of the targets.
func (a *Agent) hello(ctx context.Context, targets []string) []answer {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timing.CallTimeout)
	defer cancel()
	body := encode(a.introduce())
	answers := make([]answer, len(targets))
	var wg sync.WaitGroup
	for i, target := range targets {
		wg.Go(func() {
			r := answer{target: target}
			var reply []byte
			reply, r.peer, r.err = a.deps.Mux.CallAddr(ctx, target, methodHello, body)
			if r.err == nil {
				r.hello, r.err = decode[helloMessage](reply)
			}
			if r.err == nil && string(r.peer.ID) != r.hello.Node.ID {
				r.err = fmt.Errorf("%s introduced itself as %q", r.peer, r.hello.Node.ID)
			}
			answers[i] = r
		})
	}
	wg.Wait()
	return answers
}

// introduce describes this node.
func (a *Agent) introduce() helloMessage {
	now := time.Now()
	// On a conflict of addresses the node is described without a view.
	node, _, _ := a.former.electorate(now)
	msg := helloMessage{Node: node, Boot: a.boot, ClusterID: a.record().ClusterID}
	if msg.ClusterID != "" {
		msg.Members = a.reachable(now)
	}
	return msg
}

// reachable are the addresses of the members heard of lately, this node included.
func (a *Agent) reachable(now time.Time) peerAddrs {
	addrs := peerAddrs{a.id: a.deps.Mux.Addr()}
	for id, p := range a.peers.all() {
		if now.Sub(p.at) < a.cfg.Timing.SuspectAfter {
			addrs[id] = p.ping.Addr
		}
	}
	return addrs
}

func (a *Agent) handleHello(_ context.Context, from mux.Peer, body []byte) ([]byte, error) {
	msg, err := decode[helloMessage](body)
	if err != nil {
		return nil, err
	}
	if from.ID != "" && msg.Node.ID == string(from.ID) && msg.ClusterID == "" {
		a.former.record("", msg.Node, time.Now())
	}
	return encode(a.introduce()), nil
}

// formOrJoin asks the seeds until one leads into a cluster, or until the empty
// nodes among them have chosen a founder and it is this node.
func (a *Agent) formOrJoin(ctx context.Context) error {
	var refusals refusalWatch
	var duplicate duplicateWatch
	var turn proposer
	var told time.Time
	for {
		answers := a.hello(ctx, a.former.targets(time.Now()))
		if err := ctx.Err(); err != nil {
			return err
		}
		now := time.Now()
		for _, r := range answers {
			if r.err == nil && r.hello.ClusterID == "" {
				a.former.record(r.target, r.hello.Node, now)
			}
		}
		if err := refusals.look(answers, a.cfg.Timing.RefusalPatience, now); err != nil {
			return err
		}
		members, conflict := clustersIn(answers)
		if conflict == nil && len(members) > 0 {
			if joined, err := a.join(ctx, members, &duplicate); joined || err != nil {
				return err
			}
		}
		if a.former.isChosen() {
			return a.found(ctx)
		}
		self, e, err := a.former.electorate(now)
		conflict = errors.Join(conflict, err)
		if now.Sub(told) > tellInterval {
			a.tell(e, conflict, answers)
			told = now
		}
		if conflict == nil && len(members) == 0 && turn.due(self, e, a.cfg.Timing, now) {
			a.propose(ctx, self, e)
		}
		if err := sleep(ctx, a.cfg.Timing.HelloInterval, a.wakes[loopFollow]); err != nil {
			return err
		}
	}
}

// tellInterval is how often a node without a cluster says what it waits for.
const tellInterval = 10 * time.Second

// tell logs why there is no cluster yet.
func (a *Agent) tell(e genesis.Electorate, conflict error, answers []answer) {
	var faults []string
	for _, r := range answers {
		if r.err != nil {
			faults = append(faults, r.target+": "+r.err.Error())
		}
	}
	if conflict != nil {
		a.log.Error("cannot form or join a cluster", "err", conflict)
		return
	}
	a.log.Info("waiting for a cluster", "voters", []string(e.View), "quorum", e.Quorum, "unheard", e.Unheard(),
		"agreeing", len(e.Agreeing()), "faults", strings.Join(faults, "; "))
}

// refusalWatch notices that nobody answers and somebody refuses, for long.
type refusalWatch struct {
	since time.Time
}

// look judges one round of questions. Its error is a *RefusedError.
func (w *refusalWatch) look(answers []answer, patience time.Duration, now time.Time) error {
	var refusal error
	for _, r := range answers {
		if r.err == nil {
			*w = refusalWatch{}
			return nil
		}
		if reason := finalRefusal(r.err); reason != "" && refusal == nil {
			refusal = &RefusedError{Reason: reason, Err: r.err}
		}
	}
	switch {
	case refusal == nil:
		return nil
	case w.since.IsZero():
		w.since = now
		return nil
	case now.Sub(w.since) < patience:
		return nil
	default:
		return refusal
	}
}

// finalRefusal names the reason if err is a refusal that trying again cannot mend,
// unless the other end changes.
func finalRefusal(err error) string {
	var refused *mux.RefusedError
	switch {
	case errors.Is(err, mux.ErrWrongSecret):
		return "the nodes do not hold the same secret"
	case !errors.As(err, &refused):
		return ""
	case refused.Code == mux.RefusedWrongCluster:
		return "the seeds belong to another cluster"
	case refused.Code == mux.RefusedVersion:
		return "the peer protocol versions differ"
	case refused.Code == mux.RefusedRemoved:
		return "this node was removed from the cluster"
	default:
		return ""
	}
}

// clustersIn returns the answers of members, and an error if they belong to
// different clusters.
func clustersIn(answers []answer) ([]answer, error) {
	found := slices.DeleteFunc(slices.Clone(answers), func(r answer) bool { return r.err != nil || r.hello.ClusterID == "" })
	for _, r := range found {
		if r.hello.ClusterID != found[0].hello.ClusterID {
			return nil, fmt.Errorf("seeds belong to different clusters: %s to %s, %s to %s",
				found[0].target, found[0].hello.ClusterID, r.target, r.hello.ClusterID)
		}
	}
	return found, nil
}
