package mux_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/raftnode/mux"
)

// userTimeoutMillis returns TCP_USER_TIMEOUT of a connection.
func userTimeoutMillis(t *testing.T, c net.Conn) int {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	var value int
	require.NoError(t, raw.Control(func(fd uintptr) {
		value, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	}))
	require.NoError(t, err)
	return value
}

func TestTCPKeepsAlive(t *testing.T) {
	n := networkCase{server: mux.TCP{}, client: mux.TCP{}, host: "127.0.0.1"}
	near, far := n.connect(t)
	for _, c := range []net.Conn{near, far} {
		require.Equal(t, 3000, userTimeoutMillis(t, c))
	}
	_, err := mux.TCP{LocalIP: "nonsense"}.Dial(t.Context(), "127.0.0.1:1")
	require.ErrorContains(t, err, "not an IP address")
}
