package mux_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/raftnode/mux"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// networkCase is a network with two hosts on it.
type networkCase struct {
	server, client mux.Network
	host           string // of server
}

// forEachNetwork runs a test of the contract of mux.Network on every network.
func forEachNetwork(t *testing.T, test func(t *testing.T, n networkCase)) {
	t.Run("tcp", func(t *testing.T) {
		test(t, networkCase{server: mux.TCP{}, client: mux.TCP{LocalIP: "127.0.0.1"}, host: "127.0.0.1"})
	})
	t.Run("memnet", func(t *testing.T) {
		n := memnet.New(1)
		test(t, networkCase{server: n.Host("server"), client: n.Host("client"), host: "server"})
	})
}

// connect returns both ends of a connection: the one that dialed and the accepted one.
func (n networkCase) connect(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := n.server.Listen(n.host + ":0")
	require.NoError(t, err)
	near, err = n.client.Dial(within(t, 5*time.Second), l.Addr().String())
	require.NoError(t, err)
	far, err = l.Accept()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

func TestNetworkCarriesBytesBothWays(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, n networkCase) {
		near, far := n.connect(t)
		require.Equal(t, near.RemoteAddr().String(), far.LocalAddr().String())
		require.Equal(t, near.LocalAddr().String(), far.RemoteAddr().String())
		rng := rand.New(rand.NewPCG(seed(t), 0))
		sent := make([]byte, 3<<20)
		for i := range sent {
			sent[i] = byte(rng.Uint32())
		}
		var writers sync.WaitGroup
		defer writers.Wait()
		for _, c := range []net.Conn{near, far} {
			writers.Go(func() {
				_, _ = c.Write(sent[:1]) // a short write joins what follows
				_, _ = c.Write(sent[1:])
			})
		}
		for _, c := range []net.Conn{near, far} {
			got := make([]byte, len(sent))
			_, err := io.ReadFull(c, got)
			require.NoError(t, err)
			require.True(t, bytes.Equal(sent, got))
		}
	})
}

func TestNetworkCloseDeliversWhatWasWritten(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, n networkCase) {
		near, far := n.connect(t)
		_, err := near.Write([]byte("last words"))
		require.NoError(t, err)
		require.NoError(t, near.Close())
		got, err := io.ReadAll(far)
		require.NoError(t, err)
		require.Equal(t, "last words", string(got))
		n2, err := far.Read(make([]byte, 1))
		require.Equal(t, 0, n2)
		require.Equal(t, io.EOF, err)
	})
}

func TestNetworkOperationsOnClosedConnFail(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, n networkCase) {
		near, far := n.connect(t)
		require.NoError(t, near.Close())
		_, err := near.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = near.Write([]byte{1})
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorIs(t, near.SetDeadline(time.Now()), net.ErrClosed)
		require.ErrorIs(t, near.Close(), net.ErrClosed)
		// The other end finds out when it writes: at the latest with the second write.
		eventually(t, "write to a closed end fails", func() bool {
			_, err := far.Write([]byte{1})
			return err != nil
		})
	})
}

func TestNetworkCloseUnblocks(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, n networkCase) {
		near, _ := n.connect(t)
		require.NoError(t, near.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
		requireTimeout(t, fill(near)) // from here on a write blocks
		require.NoError(t, near.SetWriteDeadline(time.Time{}))
		ended := make(chan error, 2)
		go func() {
			_, err := near.Read(make([]byte, 1))
			ended <- err
		}()
		go func() { ended <- fill(near) }()
		require.NoError(t, near.Close())
		for range 2 {
			require.ErrorIs(t, <-ended, net.ErrClosed)
		}
	})
}

// fill writes until it fails.
func fill(c net.Conn) error {
	for {
		if _, err := c.Write(make([]byte, 64<<10)); err != nil {
			return err
		}
	}
}

func TestNetworkDeadlines(t *testing.T) {
	operations := map[string]struct {
		set func(net.Conn, time.Time) error
		run func(net.Conn) error
	}{
		"read": {net.Conn.SetReadDeadline, func(c net.Conn) error {
			_, err := c.Read(make([]byte, 1))
			return err
		}},
		"write": {net.Conn.SetWriteDeadline, fill},
		"both": {net.Conn.SetDeadline, func(c net.Conn) error {
			_, err := c.Read(make([]byte, 1))
			return errors.Join(err, fill(c))
		}},
	}
	for name, op := range operations {
		t.Run(name, func(t *testing.T) {
			forEachNetwork(t, func(t *testing.T, n networkCase) {
				near, _ := n.connect(t)
				for _, at := range []time.Duration{-time.Hour, 0, 20 * time.Millisecond} {
					require.NoError(t, op.set(near, time.Now().Add(at)))
					requireTimeout(t, op.run(near))
					requireTimeout(t, op.run(near)) // it stays passed
				}
				// A deadline set while the operation waits counts.
				require.NoError(t, op.set(near, time.Time{}))
				ended := make(chan error, 1)
				go func() { ended <- op.run(near) }()
				require.NoError(t, op.set(near, time.Now().Add(20*time.Millisecond)))
				requireTimeout(t, <-ended)
			})
		})
	}
}

func requireTimeout(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
}

func TestNetworkDeadlineCanBeLifted(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, n networkCase) {
		near, far := n.connect(t)
		require.NoError(t, far.SetDeadline(time.Now().Add(-time.Second)))
		_, err := far.Read(make([]byte, 1))
		requireTimeout(t, err)
		require.NoError(t, far.SetDeadline(time.Time{}))
		_, err = near.Write([]byte("x"))
		require.NoError(t, err)
		got := make([]byte, 1)
		_, err = io.ReadFull(far, got)
		require.NoError(t, err)
		require.Equal(t, "x", string(got))
	})
}

func TestNetworkConcurrentWritesDoNotMix(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, n networkCase) {
		near, far := n.connect(t)
		const writers, each, size = 4, 8, 200 << 10
		var writing sync.WaitGroup
		for w := range writers {
			writing.Go(func() {
				for range each {
					_, _ = near.Write(bytes.Repeat([]byte{byte('a' + w)}, size))
				}
			})
		}
		go func() {
			writing.Wait()
			_ = near.Close()
		}()
		block, count := make([]byte, size), 0
		for {
			_, err := io.ReadFull(far, block)
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			require.Equal(t, size, bytes.Count(block, block[:1]), "block %d", count)
			count++
		}
		require.Equal(t, writers*each, count)
	})
}

func TestNetworkConcurrentMethodsAreSafe(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, n networkCase) {
		near, far := n.connect(t)
		go func() { _, _ = io.Copy(far, far) }()
		var all sync.WaitGroup
		for range 20 {
			for _, f := range []func(){
				func() { _, _ = near.Read(make([]byte, 100)) },
				func() { _, _ = near.Write(make([]byte, 100)) },
				func() { _ = near.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) },
				func() { _ = near.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) },
				func() { near.LocalAddr(); near.RemoteAddr() },
			} {
				all.Go(f)
			}
		}
		require.NoError(t, near.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		all.Wait()
	})
}

func TestNetworkListen(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, n networkCase) {
		l, err := n.server.Listen(n.host + ":0")
		require.NoError(t, err)
		addr := l.Addr().String()
		_, err = n.server.Listen(addr)
		require.Error(t, err, "the address is taken")
		accepted := make(chan error, 1)
		go func() {
			_, err := l.Accept()
			accepted <- err
		}()
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-accepted, net.ErrClosed)
		_, err = n.client.Dial(within(t, 5*time.Second), addr)
		require.Error(t, err, "nobody listens any more")
		l, err = n.server.Listen(addr)
		require.NoError(t, err, "the address is free again")
		require.NoError(t, l.Close())
	})
}

func TestNetworkConnNotAcceptedDiesWithListener(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, n networkCase) {
		l, err := n.server.Listen(n.host + ":0")
		require.NoError(t, err)
		near, err := n.client.Dial(within(t, 5*time.Second), l.Addr().String())
		require.NoError(t, err)
		defer near.Close()
		require.NoError(t, l.Close())
		require.NoError(t, near.SetReadDeadline(time.Now().Add(5*time.Second)))
		_, err = near.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

func TestNetworkDialWithEndedContextFails(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, n networkCase) {
		l, err := n.server.Listen(n.host + ":0")
		require.NoError(t, err)
		defer l.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = n.client.Dial(ctx, l.Addr().String())
		require.Error(t, err)
	})
}
