package fault

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echoNetwork has the node b, which answers what it is sent, and the node a, which is
// this process.
func echoNetwork(t *testing.T) (*Network, func() net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	n := NewNetwork()
	t.Cleanup(func() {
		n.Close()
		_ = l.Close()
	})
	require.NoError(t, n.Add("a", Endpoint{Front: "127.0.0.1:0", Back: "127.0.0.1:1"}))
	require.NoError(t, n.Add("b", Endpoint{Front: "127.0.0.1:0", Back: l.Addr().String()}))
	n.SetProcess("a", os.Getpid())
	front := n.nodes["b"].listener.Addr().String()
	return n, func() net.Conn {
		c, err := net.Dial("tcp4", front)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := c.Write([]byte(text))
	require.NoError(t, err)
}

func receive(t *testing.T, c net.Conn, n int) string {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	buf := make([]byte, n)
	_, err := io.ReadFull(c, buf)
	require.NoError(t, err)
	return string(buf)
}

// requireSilence wants nothing to arrive for a moment that is long on loopback.
func requireSilence(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(150*time.Millisecond)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestHealthyLinkPassesBytesBothWays(t *testing.T) {
	_, dial := echoNetwork(t)
	c := dial()
	send(t, c, "hello")
	require.Equal(t, "hello", receive(t, c, 5))
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the end of the input is passed on")
}

func TestCutHoldsBytesBackUntilHealed(t *testing.T) {
	for _, l := range []Link{{"a", "b"}, {"b", "a"}} {
		t.Run(l.String(), func(t *testing.T) {
			n, dial := echoNetwork(t)
			before := dial()
			send(t, before, "1")
			receive(t, before, 1)
			require.NoError(t, n.Set(l, Conditions{Cut: true}))
			during := dial()
			send(t, before, "two")
			send(t, during, "three")
			requireSilence(t, before)
			requireSilence(t, during)
			n.Heal()
			require.Equal(t, "two", receive(t, before, 3))
			require.Equal(t, "three", receive(t, during, 5))
		})
	}
}

func TestDelayAddsUpOverBothDirections(t *testing.T) {
	n, dial := echoNetwork(t)
	require.NoError(t, n.Isolate("b", Conditions{Delay: 50 * time.Millisecond, Jitter: 10 * time.Millisecond}))
	c := dial()
	start := time.Now()
	send(t, c, "x")
	receive(t, c, 1)
	require.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond)
}

func TestThrottleBoundsThroughput(t *testing.T) {
	n, dial := echoNetwork(t)
	require.NoError(t, n.Set(Link{"a", "b"}, Conditions{BytesPerSecond: 64 << 10}))
	c := dial()
	start := time.Now()
	send(t, c, string(make([]byte, 16<<10)))
	receive(t, c, 16<<10)
	require.GreaterOrEqual(t, time.Since(start), 240*time.Millisecond)
}

func TestResetAndRefuse(t *testing.T) {
	n, dial := echoNetwork(t)
	c := dial()
	send(t, c, "1")
	receive(t, c, 1)
	require.Zero(t, n.Reset(Link{"b", "a"}))
	require.Equal(t, 1, n.Reset(Link{"a", "b"}))
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)

	require.NoError(t, n.Set(Link{"a", "b"}, Conditions{Refuse: true}))
	requireRefused(t, n.nodes["b"].listener.Addr().String())
}

// requireRefused wants a connection to be reset, in the dial or after it.
func requireRefused(t *testing.T, front string) {
	t.Helper()
	c, err := net.Dial("tcp4", front)
	if err != nil {
		return
	}
	defer c.Close()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestStrangersAreRefused(t *testing.T) {
	n, _ := echoNetwork(t)
	n.SetProcess("a", 0)
	requireRefused(t, n.nodes["b"].listener.Addr().String())
	require.ErrorIs(t, n.Set(Link{"a", "z"}, Conditions{}), ErrUnknownNode)
}
