package mux

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// recording is what both sides of one connection sent.
type recording struct {
	mu           sync.Mutex
	asked, given bytes.Buffer
}

// tap copies what is read from r.
func (r *recording) tap(from io.Reader, to *bytes.Buffer) io.Reader {
	return io.TeeReader(from, writerFunc(func(p []byte) (int, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return to.Write(p)
	}))
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// record passes one connection on to addr and writes down both directions. done is closed
// when it has ended.
func record(t *testing.T, addr string) (proxy string, r *recording, done chan struct{}) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	r, done = &recording{}, make(chan struct{})
	go func() {
		defer close(done)
		near, err := l.Accept()
		if err != nil {
			return
		}
		defer near.Close()
		far, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer far.Close()
		var both sync.WaitGroup
		both.Go(func() {
			_, _ = io.Copy(far, r.tap(near, &r.asked))
			_ = far.Close()
		})
		both.Go(func() {
			_, _ = io.Copy(near, r.tap(far, &r.given))
			_ = near.Close()
		})
		both.Wait()
	}()
	return l.Addr().String(), r, done
}

// counting starts a node that counts the calls of method 2.
func counting(t *testing.T, secret string) (m *Mux, handled *atomic.Int64) {
	cfg := DefaultConfig()
	cfg.ListenAddr, cfg.NodeID, cfg.Incarnation, cfg.Secret = "127.0.0.1:0", "n1", "1", []byte(secret)
	m, err := Open(cfg, Deps{Network: TCP{}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	handled = &atomic.Int64{}
	m.Handle(2, func(context.Context, Peer, []byte) ([]byte, error) {
		handled.Add(1)
		return []byte("done"), nil
	})
	m.Start()
	return m, handled
}

// callOnce has an honest tool call method 2 at addr.
func callOnce(t *testing.T, secret, addr string) error {
	cfg := DefaultConfig()
	cfg.Secret = []byte(secret)
	tool, err := Open(cfg, Deps{Network: TCP{}})
	require.NoError(t, err)
	defer tool.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, _, err = tool.CallAddr(ctx, addr, 2, []byte("once"))
	return err
}

// replay sends bytes in pieces of size and reads until the other side closes.
func replay(t *testing.T, addr string, sent []byte, size int) {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	for rest := sent; len(rest) > 0; rest = rest[min(size, len(rest)):] {
		if _, err := conn.Write(rest[:min(size, len(rest))]); err != nil {
			break // it was refused already
		}
	}
	_ = conn.(*net.TCPConn).CloseWrite() // fails where the node has closed already
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = io.Copy(io.Discard, conn)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the node does not end the connection")
}

// TestARecordedConversationIsWorthNothing plays the bytes of an honest tool to the node
// again. Without a secret they are taken, which shows that they are played right.
func TestARecordedConversationIsWorthNothing(t *testing.T) {
	for secret, taken := range map[string]bool{"secret": false, "": true} {
		t.Run("secret "+secret, func(t *testing.T) {
			m, handled := counting(t, secret)
			proxy, r, done := record(t, m.Addr())
			require.NoError(t, callOnce(t, secret, proxy))
			<-done
			require.EqualValues(t, 1, handled.Load())
			require.Equal(t, taken, bytes.Contains(r.asked.Bytes(), []byte("once")), "with a secret nothing is readable")
			for _, size := range []int{r.asked.Len(), 600, 100} {
				replay(t, m.Addr(), r.asked.Bytes(), size)
			}
			if taken {
				require.Eventually(t, func() bool { return handled.Load() == 4 }, time.Minute, time.Millisecond)
				return
			}
			require.NoError(t, callOnce(t, secret, m.Addr()))
			require.EqualValues(t, 2, handled.Load(), "a replay was taken for a call")
		})
	}
}

// TestARecordedNodeIsNotTakenForOne plays the bytes of a node to an honest tool.
func TestARecordedNodeIsNotTakenForOne(t *testing.T) {
	m, _ := counting(t, "secret")
	proxy, r, done := record(t, m.Addr())
	require.NoError(t, callOnce(t, "secret", proxy))
	<-done
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(r.given.Bytes())
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	})
	require.Error(t, callOnce(t, "secret", l.Addr().String()))
	require.NoError(t, l.Close())
	served.Wait()
}
