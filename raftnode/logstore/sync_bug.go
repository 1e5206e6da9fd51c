//go:build bug_skipfsync

package logstore

// syncFile reports a sync that did not happen. It exists only under the build tag
// bug_skipfsync, to prove that the crash tests notice a log that does not sync.
func syncFile(File) error { return nil }
