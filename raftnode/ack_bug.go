//go:build bug_ackbeforecommit

package raftnode

import "github.com/quorate/quorate/fsm/command"

// unanswered answers every proposal as soon as it is dispatched. It is a planted
// bug: the suites must fail when built with this tag.
func unanswered(batch []*proposal) []*proposal {
	for _, p := range batch {
		results := make([]command.Result, len(p.cmds))
		for i := range results {
			results[i].Changed = true
		}
		p.answer(results, nil)
	}
	return nil
}
