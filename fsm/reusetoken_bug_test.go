//go:build bug_reusetoken

package fsm_test

import "testing"

// TestPlantedBugIsCaught expects the checks that the healthy code passes to fail.
func TestPlantedBugIsCaught(t *testing.T) {
	for range 100 {
		if tokensAscendAcrossRestarts(t) != nil {
			return
		}
	}
	t.Error("not seen in 100 runs")
}
