//go:build bug_losesubscriber

package topics

import "testing"

// TestPlantedBugIsCaught expects the checks that the healthy code passes to fail.
func TestPlantedBugIsCaught(t *testing.T) {
	for range 100 {
		if nobodyIsLeftOut(t) != nil {
			return
		}
	}
	t.Error("not seen in 100 runs")
}
