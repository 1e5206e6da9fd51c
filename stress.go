//go:build !stress

package quorate

import "time"

// unixMillis is the wall clock.
func unixMillis() int64 { return time.Now().UnixMilli() }

// stress changes nothing: only builds with the tag stress can be tampered with.
func stress(*NodeConfig) error { return nil }
