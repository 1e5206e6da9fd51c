package raftnode

import (
	"context"
	"errors"

	"github.com/quorate/quorate/fsm/command"
)

// commandOverhead is what a command takes in an entry beside its body, at most.
const commandOverhead = 8

// proposal implements Proposal.
type proposal struct {
	cmds  []Command
	bytes int
	// done is closed once results or err is set; both are read-only from then on.
	done    chan struct{}
	results []command.Result
	err     error
}

func newProposal(cmds []Command) *proposal {
	p := &proposal{cmds: cmds, done: make(chan struct{})}
	for i := range cmds {
		p.bytes += len(cmds[i].Body) + commandOverhead
	}
	return p
}

// Wait implements Proposal.
func (p *proposal) Wait(ctx context.Context) ([]command.Result, error) {
	select {
	case <-p.done:
		return p.results, p.err
	case <-ctx.Done():
		return nil, errors.Join(ErrUnknown, ctx.Err())
	}
}

// answer ends the proposal. It must be called once.
func (p *proposal) answer(results []command.Result, err error) {
	p.results, p.err = results, err
	close(p.done)
}

// answerAll deals the results of one entry out to the proposals in it.
func answerAll(batch []*proposal, results []command.Result, err error) {
	for _, p := range batch {
		if err != nil {
			p.answer(nil, err)
			continue
		}
		n := len(p.cmds)
		p.answer(results[:n:n], nil)
		results = results[n:]
	}
}
