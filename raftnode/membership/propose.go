package membership

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorate/quorate/raftnode/membership/genesis"
	"github.com/quorate/quorate/raftnode/mux"
)

// proposer decides when this node tries to have a founder chosen.
type proposer struct {
	view genesis.View
	at   time.Time
}

// due reports whether to try now. The voter with the lowest id tries at once; the
// others leave it the time to succeed, and rivals are kept apart by chance.
func (p *proposer) due(self genesis.Node, e genesis.Electorate, t Timing, now time.Time) bool {
	agreeing := e.Agreeing()
	if !e.View.Has(self.Addr) || len(agreeing) < e.Quorum {
		p.view = nil
		return false
	}
	if p.view == nil || !p.view.Equal(e.View) {
		p.view, p.at = e.View, now
		if agreeing[0].ID != self.ID {
			p.at = now.Add(t.ProposeAfter + rand.N(t.ProposeAfter))
		}
	}
	if now.Before(p.at) {
		return false
	}
	p.at = now.Add(rand.N(t.ProposeAfter))
	return true
}

// propose runs one attempt: both phases of the vote, and the message to the
// founder. Failure of any part is normal; another attempt finds what it left.
func (a *Agent) propose(ctx context.Context, self genesis.Node, e genesis.Electorate) {
	t := a.former.attempt(self, e)
	defer func() { a.former.learned(t.Highest()) }()
	msg := voteMessage{Ballot: t.Ballot(), View: t.View()}
	// The node's own promise comes first. It is durable, so neither a later attempt
	// nor a later life of the process uses the ballot again.
	if own, err := a.former.vote(methodPrepare, msg, time.Now()); err != nil || !own.Granted {
		a.log.Debug("attempt not begun", "err", err)
		return
	}
	a.poll(ctx, e, methodPrepare, msg, t.Promised)
	founder, ok := t.Proposal()
	if !ok {
		return
	}
	msg.Founder = founder
	a.poll(ctx, e, methodAccept, msg, t.Accepted)
	if _, ok := t.Chosen(); !ok {
		return
	}
	a.log.Info("founder of the cluster is chosen", "node", founder.ID, "voters", len(e.View))
	if founder.ID == self.ID {
		a.former.choose()
		return
	}
	if _, _, err := a.deps.Mux.CallAddr(ctx, founder.Addr, methodChosen, encode(msg)); err != nil {
		a.log.Debug("founder not told", "node", founder.ID, "err", err)
	}
}

// poll asks all voters that are up and passes on their answers, one at a time. It
// returns when each has answered or failed to.
func (a *Agent) poll(ctx context.Context, e genesis.Electorate, method mux.Method, msg voteMessage,
	answered func(name string, answer genesis.Answer)) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timing.CallTimeout)
	defer cancel()
	var mu sync.Mutex // serialises answered
	var wg sync.WaitGroup
	for _, voter := range e.Heard {
		wg.Go(func() {
			answer, err := a.askVote(ctx, voter, method, msg)
			if err != nil {
				a.log.Debug("no vote", "node", voter.ID, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answered(voter.Addr, answer)
		})
	}
	wg.Wait()
}

func (a *Agent) askVote(ctx context.Context, voter genesis.Node, method mux.Method, msg voteMessage) (genesis.Answer, error) {
	if voter.ID == string(a.id) {
		return a.former.vote(method, msg, time.Now())
	}
	body, peer, err := a.deps.Mux.CallAddr(ctx, voter.Addr, method, encode(msg))
	if err != nil {
		return genesis.Answer{}, err
	}
	if string(peer.ID) != voter.ID {
		return genesis.Answer{}, &mux.RefusedError{Code: mux.RefusedWrongTarget, Text: "another node answered", By: peer}
	}
	return decode[genesis.Answer](body)
}

// handleVote answers both phases.
func (a *Agent) handleVote(method mux.Method) mux.Handler {
	return func(_ context.Context, _ mux.Peer, body []byte) ([]byte, error) {
		msg, err := decode[voteMessage](body)
		if err != nil {
			return nil, err
		}
		answer, err := a.former.vote(method, msg, time.Now())
		if err != nil {
			return nil, err
		}
		return encode(answer), nil
	}
}

// handleChosen tells this node that it is the founder.
func (a *Agent) handleChosen(_ context.Context, from mux.Peer, body []byte) ([]byte, error) {
	msg, err := decode[voteMessage](body)
	if err != nil {
		return nil, err
	}
	if msg.Founder.ID != string(a.id) {
		return nil, &mux.RemoteError{Code: codeMalformed, Text: "the founder is " + msg.Founder.ID}
	}
	a.log.Info("chosen as founder", "by", from.ID)
	a.former.choose()
	a.wake()
	return nil, nil
}
