//go:build bug_skipfsync

package logstore

import "testing"

// TestSkippedSyncIsCaught expects the planted bug to be seen by the same checks
// that the healthy log passes.
func TestSkippedSyncIsCaught(t *testing.T) {
	if err := crashAtEveryPoint("power loss", testSeed(t)); err == nil {
		t.Error("a log that never syncs survived a power loss at every operation")
	}
	if err := crashUnderLoad(testSeed(t), 40); err == nil {
		t.Error("a log that never syncs survived 40 crashes under load")
	}
}
