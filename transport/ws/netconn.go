package ws

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"
)

// netConn is the socket under one WebSocket connection. It gathers the frames of
// one burst into few writes, puts a deadline on each write, and closes so that the
// peer still receives what was written last.
type netConn struct {
	net.Conn
	cfg  ConnectionConfig
	pool *bufferPool

	// mu serialises writes and protects the fields below.
	mu     sync.Mutex
	corked bool
	buf    []byte // gathered while corked; taken from pool with the first byte

	// deadlines protects the fields below. It is never held during I/O.
	deadlines   sync.Mutex
	ending      bool      // reads end at readsUntil, whatever is asked for
	writesUntil time.Time // zero, or no write lasts longer
	readsUntil  time.Time
}

// wireWriter is the size of the buffer between the WebSocket library and netConn:
// enough for a frame header and a short frame.
const wireWriter = 512

// hijacker hands the WebSocket library our netConn in place of the raw socket.
type hijacker struct {
	http.ResponseWriter
	cfg  ConnectionConfig
	pool *bufferPool
	conn *netConn
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn = &netConn{Conn: raw, cfg: h.cfg, pool: h.pool}
	return h.conn, bufio.NewReadWriter(rw.Reader, bufio.NewWriterSize(h.conn, wireWriter)), nil
}

// Write implements net.Conn. While corked it only gathers, up to the buffer sizes.
func (n *netConn) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.corked {
		return n.writeLocked(p)
	}
	if len(n.buf)+len(p) > n.cfg.MaxWriteBufferSize {
		if err := n.flushLocked(); err != nil {
			return 0, err
		}
		return n.writeLocked(p)
	}
	if n.buf == nil {
		n.buf = n.pool.get()
	}
	n.buf = append(n.buf, p...)
	if len(n.buf) >= n.cfg.WriteBufferSize {
		if err := n.flushLocked(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// cork makes writes gather until uncork.
func (n *netConn) cork() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.corked = true
}

// uncork writes what was gathered.
func (n *netConn) uncork() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.corked = false
	err := n.flushLocked()
	n.pool.put(n.buf)
	n.buf = nil
	return err
}

func (n *netConn) flushLocked() error {
	if len(n.buf) == 0 {
		return nil
	}
	_, err := n.writeLocked(n.buf)
	n.buf = n.buf[:0]
	return err
}

func (n *netConn) writeLocked(p []byte) (int, error) {
	until := time.Now().Add(n.cfg.SendTimeout)
	n.deadlines.Lock()
	if !n.writesUntil.IsZero() && n.writesUntil.Before(until) {
		until = n.writesUntil
	}
	err := n.SetWriteDeadline(until)
	n.deadlines.Unlock()
	if err != nil {
		return 0, err
	}
	return n.Conn.Write(p)
}

// limitWrites makes every write, also one under way, end at t.
func (n *netConn) limitWrites(t time.Time) {
	n.deadlines.Lock()
	defer n.deadlines.Unlock()
	if n.writesUntil.IsZero() || t.Before(n.writesUntil) {
		n.writesUntil = t
		_ = n.SetWriteDeadline(t) // fails on a closed socket only
	}
}

// readUntil bounds the next reads.
func (n *netConn) readUntil(t time.Time) {
	n.deadlines.Lock()
	defer n.deadlines.Unlock()
	if !n.ending {
		_ = n.SetReadDeadline(t) // fails on a closed socket only
	}
}

// interrupt ends the read under way and all later ones.
func (n *netConn) interrupt() {
	n.deadlines.Lock()
	defer n.deadlines.Unlock()
	if !n.ending {
		n.ending = true
		_ = n.SetReadDeadline(time.Unix(1, 0)) // fails on a closed socket only
	}
}

// linger lets the closing handshake read until t, and makes Close wait as long for
// the peer to take what was sent.
func (n *netConn) linger(t time.Time) {
	n.deadlines.Lock()
	defer n.deadlines.Unlock()
	n.ending, n.readsUntil = true, t
	_ = n.SetReadDeadline(t) // fails on a closed socket only
}

// Close implements net.Conn. After linger it sends what is left and waits for the
// peer to close: a socket closed with unread input resets the connection, and the
// peer would lose the Close frame that says why.
func (n *netConn) Close() error {
	n.deadlines.Lock()
	until := n.readsUntil
	n.deadlines.Unlock()
	if half, ok := n.Conn.(interface{ CloseWrite() error }); ok && time.Now().Before(until) && half.CloseWrite() == nil {
		scratch := n.pool.get()
		for {
			if _, err := n.Read(scratch[:cap(scratch)]); err != nil {
				break
			}
		}
		n.pool.put(scratch)
	}
	return n.Conn.Close()
}

// cut closes the socket at once.
func (n *netConn) cut() {
	n.deadlines.Lock()
	n.readsUntil = time.Time{}
	n.deadlines.Unlock()
	_ = n.Conn.Close() // the peer is not told anyway
}
