package ws

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// recorder is a socket that remembers the sizes of its writes.
type recorder struct {
	net.Conn
	sizes []int
}

func (r *recorder) Write(p []byte) (int, error) {
	r.sizes = append(r.sizes, len(p))
	return len(p), nil
}

func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

func TestCorkedWritesTravelTogether(t *testing.T) {
	cfg := DefaultConnectionConfig()
	cfg.WriteBufferSize, cfg.MaxWriteBufferSize = 100, 150
	r := &recorder{}
	n := &netConn{Conn: r, cfg: cfg, pool: &bufferPool{}}
	write := func(size int) {
		_, err := n.Write(make([]byte, size))
		require.NoError(t, err)
	}
	write(10)
	require.Equal(t, []int{10}, r.sizes, "uncorked writes go at once")
	n.cork()
	write(10)
	write(20)
	require.Equal(t, []int{10}, r.sizes)
	write(80)
	require.Equal(t, []int{10, 110}, r.sizes, "the buffer is written when it is full")
	write(30)
	write(200)
	require.Equal(t, []int{10, 110, 30, 200}, r.sizes, "what does not fit is written past it")
	write(5)
	require.NoError(t, n.uncork())
	require.Equal(t, []int{10, 110, 30, 200, 5}, r.sizes)
	require.NoError(t, n.uncork())
	require.Len(t, r.sizes, 5)
	require.Nil(t, n.buf, "an idle connection holds no buffer")
}

// tcpPair is a connected pair of sockets.
func tcpPair(t *testing.T) (ours *netConn, peer *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var wg sync.WaitGroup
	var accepted net.Conn
	wg.Go(func() { accepted, _ = l.Accept() })
	dialed, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	wg.Wait()
	require.NotNil(t, accepted)
	t.Cleanup(func() { _ = accepted.Close(); _ = dialed.Close() })
	return &netConn{Conn: accepted, cfg: DefaultConnectionConfig(), pool: &bufferPool{}}, dialed.(*net.TCPConn)
}

func TestCloseLingersUntilThePeerHasRead(t *testing.T) {
	ours, peer := tcpPair(t)
	_, err := ours.Write([]byte("goodbye"))
	require.NoError(t, err)
	_, err = peer.Write(make([]byte, 100_000)) // input that nobody reads
	require.NoError(t, err)
	ours.linger(time.Now().Add(patience))
	closed := make(chan error)
	go func() { closed <- ours.Close() }()
	got, err := io.ReadAll(peer) // ends with our half of the connection
	require.NoError(t, err)
	require.Equal(t, "goodbye", string(got))
	select {
	case <-closed:
		t.Fatal("closed before the peer did")
	default:
	}
	require.NoError(t, peer.Close())
	require.NoError(t, <-closed)
}

func TestLingeringIsBoundedAndCutDoesNotLinger(t *testing.T) {
	ours, _ := tcpPair(t)
	ours.linger(time.Now().Add(50 * time.Millisecond))
	require.NoError(t, ours.Close())

	ours, peer := tcpPair(t)
	ours.linger(time.Now().Add(time.Hour))
	ours.cut()
	_, err := io.ReadAll(peer)
	require.NoError(t, err)
}

func TestInterruptEndsReadsForGood(t *testing.T) {
	ours, _ := tcpPair(t)
	ours.readUntil(time.Now().Add(time.Hour))
	result := make(chan error)
	go func() {
		_, err := ours.Read(make([]byte, 1))
		result <- err
	}()
	ours.interrupt()
	require.Error(t, <-result)
	ours.readUntil(time.Now().Add(time.Hour)) // too late
	_, err := ours.Read(make([]byte, 1))
	require.Error(t, err)
}
