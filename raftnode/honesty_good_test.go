//go:build !bug_ackbeforecommit

package raftnode

import "testing"

func TestMinorityNeverAcknowledges(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		if err := minorityAnswers(c); err != nil {
			t.Error(err)
		}
	})
}
