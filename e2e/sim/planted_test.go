//go:build !bug_ackbeforecommit && !bug_skipfsync

package sim

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPlantedBugsAreCaught builds the simulation with a bug and wants it to fail: a
// node that acknowledges before the commit, and a log that skips the sync.
func TestPlantedBugsAreCaught(t *testing.T) {
	for _, tag := range []string{"bug_ackbeforecommit", "bug_skipfsync"} {
		t.Run(tag, func(t *testing.T) {
			cmd := exec.Command("go", "test", "-tags", tag, "-run", "^TestNothingAcknowledgedIsLost$", "-count", "1", ".", "-sim.runs", "4")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "repeat with -sim.seed") {
				t.Errorf("the bug was not caught: %v\n%s", err, out)
			}
		})
	}
}
