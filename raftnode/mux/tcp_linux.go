package mux

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// setUserTimeout bounds how long sent bytes may go unacknowledged (RFC 5482).
func setUserTimeout(_, _ string, c syscall.RawConn) error {
	var err error
	controlErr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(tcpTimeout.Milliseconds()))
	})
	if controlErr != nil {
		return controlErr
	}
	return err
}
