//go:build !linux

package mux

import "syscall"

// setUserTimeout does nothing: keep-alive and the pings of the mux must do here.
func setUserTimeout(_, _ string, _ syscall.RawConn) error { return nil }
