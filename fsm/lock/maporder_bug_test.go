//go:build bug_maporder

package lock_test

import "testing"

// TestPlantedBugIsCaught expects the checks that the healthy code passes to fail.
func TestPlantedBugIsCaught(t *testing.T) {
	for range 100 {
		if replicasAgree(t) != nil {
			return
		}
	}
	t.Error("not seen in 100 runs")
}
