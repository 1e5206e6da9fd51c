//go:build bug_ackbeforecommit

package raftnode

import (
	"slices"

	"github.com/quorate/quorate/fsm/command"
)

// unanswered answers proposals of records and sets as soon as they are dispatched, and puts
// others that nobody waits for in their place. Of the rest the results say more than that
// they were taken. It is a planted bug: the suites must fail when built with this tag.
func unanswered(batch []*proposal) []*proposal {
	batch = slices.Clone(batch)
	for i, p := range batch {
		if results, told := foretold(p.cmds); told {
			batch[i] = &proposal{cmds: p.cmds, done: make(chan struct{})}
			p.answer(results, nil)
		}
	}
	return batch
}

// foretold are the results that commands will most likely have.
func foretold(cmds []command.Raw) ([]command.Result, bool) {
	results := make([]command.Result, len(cmds))
	for i, cmd := range cmds {
		if cmd.Kind != command.KindPut && cmd.Kind != command.KindORAdd && cmd.Kind != command.KindORRemove {
			return nil, false
		}
		results[i].Changed = true
	}
	return results, true
}
