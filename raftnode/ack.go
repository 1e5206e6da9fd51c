//go:build !bug_ackbeforecommit

package raftnode

// unanswered returns the proposals of a dispatched batch that wait for the
// commit: all of them.
func unanswered(batch []*proposal) []*proposal { return batch }
