package memnet_test

import (
	"context"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/raftnode/mux/memnet"
)

var seedFlag = flag.Uint64("seed", 0, "seed of randomised tests, 0 picks one")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func seed(t *testing.T) uint64 {
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed %d", s)
	return s
}

// connect returns both ends of a connection from host a to host b.
func connect(t *testing.T, n *memnet.Network) (a, b net.Conn) {
	t.Helper()
	l, err := n.Host("b").Listen(":0")
	require.NoError(t, err)
	a, err = n.Host("a").Dial(t.Context(), l.Addr().String())
	require.NoError(t, err)
	b, err = l.Accept()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// send writes in one goroutine's time; with room in the buffer it does not wait.
func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := c.Write([]byte(text))
	require.NoError(t, err)
}

func receive(t *testing.T, c net.Conn, text string) {
	t.Helper()
	b := make([]byte, len(text))
	_, err := io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, text, string(b))
}

// receivesNothing checks that nothing arrives in a minute.
func receivesNothing(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetReadDeadline(time.Time{}))
}

func TestLatencyIsPerDirection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(1)
		n.SetLink("a", "b", memnet.Link{Latency: 100 * time.Millisecond})
		n.SetLink("b", "a", memnet.Link{Latency: 30 * time.Millisecond})
		start := time.Now()
		a, b := connect(t, n)
		require.Equal(t, 130*time.Millisecond, time.Since(start), "dial takes a round trip")
		start = time.Now()
		send(t, a, "ping")
		receive(t, b, "ping")
		require.Equal(t, 100*time.Millisecond, time.Since(start))
		send(t, b, "pong")
		receive(t, a, "pong")
		require.Equal(t, 130*time.Millisecond, time.Since(start))
	})
}

func TestJitterKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(seed(t))
		n.SetLinks(memnet.Link{Latency: time.Millisecond, Jitter: 50 * time.Millisecond})
		a, b := connect(t, n)
		start := time.Now()
		for _, word := range []string{"one ", "two ", "three ", "four ", "five"} {
			send(t, a, word)
		}
		receive(t, b, "one two three four five")
		require.Less(t, time.Since(start), 51*time.Millisecond)
	})
}

func TestThroughputIsSharedByConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(1)
		n.SetLink("a", "b", memnet.Link{BytesPerSecond: 64 << 10})
		a1, b1 := connect(t, n)
		a2, b2 := connect(t, n)
		start := time.Now()
		for _, c := range []net.Conn{a1, a2} {
			_, err := c.Write(make([]byte, 64<<10))
			require.NoError(t, err)
		}
		for _, c := range []net.Conn{b1, b2} {
			_, err := io.ReadFull(c, make([]byte, 64<<10))
			require.NoError(t, err)
		}
		require.Equal(t, 2*time.Second, time.Since(start))
	})
}

func TestBlackholeStallsOneDirectionUntilHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(1)
		n.SetLinks(memnet.Link{Latency: 10 * time.Millisecond})
		a, b := connect(t, n)
		send(t, a, "arrived ")
		receive(t, b, "arrived ")
		send(t, a, "unread ")
		time.Sleep(11 * time.Millisecond)
		send(t, a, "under way ")
		n.Cut(memnet.Blackhole, "a", "b")
		send(t, a, "after")
		receive(t, b, "unread ")
		receivesNothing(t, b)
		send(t, b, "other direction")
		receive(t, a, "other direction")
		n.HealLink("a", "b")
		receive(t, b, "under way after")
	})
}

func TestBlackholeHidesCloseUntilHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(1)
		a, b := connect(t, n)
		n.CutBoth(memnet.Blackhole, "a", "b")
		require.NoError(t, a.Close())
		receivesNothing(t, b)
		send(t, b, "into the void")
		n.Heal()
		_, err := b.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		_, err = b.Write([]byte{1})
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

func TestDialOverBlackholeWaitsForContextOrHeal(t *testing.T) {
	for _, direction := range [][2]string{{"a", "b"}, {"b", "a"}} {
		synctest.Test(t, func(t *testing.T) {
			n := memnet.New(1)
			l, err := n.Host("b").Listen("b:7000")
			require.NoError(t, err)
			defer l.Close()
			n.Cut(memnet.Blackhole, direction[0], direction[1])
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			start := time.Now()
			_, err = n.Host("a").Dial(ctx, "b:7000")
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Equal(t, time.Minute, time.Since(start))

			go func() {
				time.Sleep(time.Hour)
				n.Heal()
			}()
			c, err := n.Host("a").Dial(t.Context(), "b:7000")
			require.NoError(t, err)
			require.NoError(t, c.Close())
		})
	}
}

func TestResetCutBreaksAndRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(1)
		a, b := connect(t, n)
		l, err := n.Host("b").Listen("b:7000")
		require.NoError(t, err)
		defer l.Close()
		n.Cut(memnet.Reset, "b", "a")
		for _, c := range []net.Conn{a, b} {
			_, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			_, err = c.Write([]byte{1})
			require.ErrorIs(t, err, syscall.ECONNRESET)
		}
		_, err = n.Host("a").Dial(t.Context(), "b:7000")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		n.Heal()
		c, err := n.Host("a").Dial(t.Context(), "b:7000")
		require.NoError(t, err)
		require.NoError(t, c.Close())
	})
}

func TestIsolateCutsFromAllOthersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(1)
		for _, name := range []string{"a", "b", "c"} {
			l, err := n.Host(name).Listen(":7000")
			require.NoError(t, err)
			defer l.Close()
		}
		n.Isolate(memnet.Reset, "a")
		for _, try := range []struct {
			from, to string
			works    bool
		}{{"a", "b", false}, {"c", "a", false}, {"b", "c", true}, {"a", "a", true}} {
			c, err := n.Host(try.from).Dial(t.Context(), try.to+":7000")
			require.Equal(t, try.works, err == nil, "%s to %s: %v", try.from, try.to, err)
			if err == nil {
				require.NoError(t, c.Close())
			}
		}
	})
}

func TestCrashedHostResetsItsConnections(t *testing.T) {
	for name, cut := range map[string]bool{"reachable": false, "cut off": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := memnet.New(1)
				a, b := connect(t, n)
				l, err := n.Host("b").Listen("b:7000")
				require.NoError(t, err)
				if cut {
					n.CutBoth(memnet.Blackhole, "a", "b")
				}
				n.CrashHost("b")
				_, err = l.Accept()
				require.ErrorIs(t, err, net.ErrClosed)
				_, err = b.Write([]byte{1})
				require.Error(t, err)
				if cut {
					receivesNothing(t, a)
					n.Heal()
				}
				_, err = a.Read(make([]byte, 1))
				require.ErrorIs(t, err, syscall.ECONNRESET)
				_, err = n.Host("a").Dial(t.Context(), "b:7000")
				require.ErrorIs(t, err, syscall.ECONNREFUSED)
				l, err = n.Host("b").Listen("b:7000")
				require.NoError(t, err, "the host is back")
				require.NoError(t, l.Close())
			})
		})
	}
}

func TestResetRateBreaksConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(seed(t))
		a, b := connect(t, n)
		n.SetLink("a", "b", memnet.Link{ResetRate: 0.1})
		go func() { _, _ = io.Copy(io.Discard, b) }()
		writes := 0
		for ; ; writes++ {
			require.Less(t, writes, 1000)
			if _, err := a.Write([]byte{1}); err != nil {
				require.ErrorIs(t, err, syscall.ECONNRESET)
				break
			}
		}
	})
}

func TestResetConnsTakesTheGivenShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(seed(t))
		conns := make([]net.Conn, 200)
		for i := range conns {
			conns[i], _ = connect(t, n)
		}
		require.Zero(t, n.ResetConns(0))
		reset := n.ResetConns(0.5)
		require.Greater(t, reset, 50)
		require.Less(t, reset, 150)
		require.Equal(t, len(conns)-reset, n.ResetConns(1))
		for _, c := range conns {
			_, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
		}
	})
}

func TestEqualSeedsGiveEqualTimes(t *testing.T) {
	s := seed(t)
	var runs [2][]time.Duration
	for i := range runs {
		synctest.Test(t, func(t *testing.T) {
			n := memnet.New(s)
			n.SetLinks(memnet.Link{Jitter: time.Second})
			for range 10 {
				start := time.Now()
				a, b := connect(t, n)
				send(t, a, "x")
				receive(t, b, "x")
				runs[i] = append(runs[i], time.Since(start))
			}
		})
	}
	require.Equal(t, runs[0], runs[1])
}

func TestFullBufferBlocksWriterUntilRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(1)
		a, b := connect(t, n)
		const size = 1 << 20
		var written atomic.Bool
		go func() {
			_, _ = a.Write(make([]byte, size))
			written.Store(true)
		}()
		synctest.Wait()
		require.False(t, written.Load())
		_, err := io.ReadFull(b, make([]byte, size))
		require.NoError(t, err)
		synctest.Wait()
		require.True(t, written.Load())
	})
}

func TestAddressErrors(t *testing.T) {
	n := memnet.New(1)
	h := n.Host("a")
	_, err := h.Listen("b:1")
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	for _, addr := range []string{"a", "a:x", "a:70000"} {
		_, err = h.Listen(addr)
		require.Error(t, err)
		_, err = h.Dial(t.Context(), addr)
		require.Error(t, err)
	}
	var dns *net.DNSError
	_, err = h.Dial(t.Context(), "nobody:1")
	require.ErrorAs(t, err, &dns)
	l, err := h.Listen("0.0.0.0:0")
	require.NoError(t, err)
	require.Equal(t, "a:10000", l.Addr().String())
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Close(), net.ErrClosed)
}
