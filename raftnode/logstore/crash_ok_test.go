//go:build !bug_skipfsync

package logstore

import "testing"

func TestCrashAtEveryOperationKeepsAckedWrites(t *testing.T) {
	for _, mode := range []string{"power loss", "torn", "kill"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			noErr(t, crashAtEveryPoint(mode, testSeed(t)))
		})
	}
}

func TestRepeatedCrashesUnderLoadKeepAckedWrites(t *testing.T) {
	for range 3 {
		noErr(t, crashUnderLoad(testSeed(t), 30))
	}
}
