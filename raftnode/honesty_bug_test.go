//go:build bug_ackbeforecommit

package raftnode

import "testing"

func TestPlantedAcknowledgementBeforeCommitIsCaught(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		err := minorityAnswers(c)
		if err == nil {
			t.Error("the planted bug went unnoticed")
		}
		t.Log("caught:", err)
	})
}
