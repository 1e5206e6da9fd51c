//go:build !bug_skipfsync

package logstore

// syncFile makes the content of f durable.
func syncFile(f File) error { return f.Sync() }
