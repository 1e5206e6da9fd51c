package memnet

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// bufferBytes is how much one direction of a connection holds before Write blocks.
const bufferBytes = 256 << 10

// conn is one end of a connection. It implements net.Conn.
type conn struct {
	net           *Network
	id            uint64
	local, remote Addr
	dialed        bool  // this is the end that dialed
	peer          *conn // the other end
	in, out       *pipe
	writing       chan struct{} // holds a token while a Write runs, so that Writes do not mix
	read, write   deadline

	// Protected by net.mu.
	closed bool  // by Close
	broken error // why every operation fails
}

func (n *Network) newConnLocked(local, remote Addr) (near, far *conn) {
	there := &pipe{link: n.linkLocked(route{local.host, remote.host}), changed: make(chan struct{})}
	back := &pipe{link: n.linkLocked(route{remote.host, local.host}), changed: make(chan struct{})}
	near = n.newEndLocked(local, remote, back, there)
	far = n.newEndLocked(remote, local, there, back)
	near.peer, far.peer = far, near
	near.dialed = true
	return near, far
}

func (n *Network) newEndLocked(local, remote Addr, in, out *pipe) *conn {
	n.lastConn++
	c := &conn{
		net: n, id: n.lastConn, local: local, remote: remote, in: in, out: out,
		writing: make(chan struct{}, 1), read: newDeadline(), write: newDeadline(),
	}
	n.conns[c.id] = c
	return c
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	for {
		n, wait, changed, err := c.readNow(b)
		if err != nil || n > 0 || len(b) == 0 {
			return n, c.fail("read", err)
		}
		if !await(changed, wait, c.read.passed()) {
			return 0, c.fail("read", os.ErrDeadlineExceeded)
		}
	}
}

// readNow takes what has arrived. If that is nothing, it returns how long the next
// arrival takes, 0 when only a change can tell, and the channel that tells.
func (c *conn) readNow(b []byte) (n int, wait time.Duration, changed <-chan struct{}, err error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	p, now := c.in, time.Now()
	switch {
	case c.closed:
		return 0, 0, nil, net.ErrClosed
	case c.broken != nil:
		return 0, 0, nil, c.broken
	case c.read.expired():
		return 0, 0, nil, os.ErrDeadlineExceeded
	case p.link.arrived(p.resetAt, now):
		return 0, 0, nil, syscall.ECONNRESET
	}
	for n < len(b) && len(p.segments) > 0 && p.link.arrived(p.segments[0].at, now) {
		n += p.takeLocked(b[n:])
	}
	if n > 0 {
		p.wakeLocked() // the writer has room
		return n, 0, nil, nil
	}
	if len(p.segments) == 0 && p.link.arrived(p.eofAt, now) {
		return 0, 0, nil, io.EOF
	}
	return 0, p.nextLocked(now), p.changed, nil
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	select {
	case c.writing <- struct{}{}:
	case <-c.write.passed():
		return 0, c.fail("write", os.ErrDeadlineExceeded)
	}
	defer func() { <-c.writing }()
	written := 0
	for {
		n, changed, err := c.writeNow(b[written:])
		written += n
		if err != nil || written == len(b) {
			return written, c.fail("write", err)
		}
		if n > 0 {
			continue
		}
		if !await(changed, 0, c.write.passed()) {
			return written, c.fail("write", os.ErrDeadlineExceeded)
		}
	}
}

// writeNow sends what there is room for. If there is none, it returns the channel
// that tells of a change.
func (c *conn) writeNow(b []byte) (int, <-chan struct{}, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	p, now := c.out, time.Now()
	switch {
	case c.closed:
		return 0, nil, net.ErrClosed
	case c.broken != nil:
		return 0, nil, c.broken
	case c.write.expired():
		return 0, nil, os.ErrDeadlineExceeded
	case c.in.link.arrived(c.in.resetAt, now), c.in.link.arrived(p.goneAt, now):
		return 0, nil, syscall.ECONNRESET
	case len(b) == 0:
		return 0, nil, nil
	}
	if rate := p.link.settings.ResetRate; rate > 0 && c.net.rng.Float64() < rate {
		c.resetLocked()
		c.peer.resetLocked()
		return 0, nil, syscall.ECONNRESET
	}
	n := min(len(b), bufferBytes-p.size)
	if n <= 0 {
		return 0, p.changed, nil
	}
	p.last = latest(p.last, c.net.arrivalLocked(p.link, n))
	p.segments = append(p.segments, segment{data: append([]byte(nil), b[:n]...), at: p.last})
	p.size += n
	p.wakeLocked()
	return n, nil, nil
}

// Close implements net.Conn. What was written still arrives.
func (c *conn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return c.fail("close", net.ErrClosed)
	}
	c.closed = true
	delete(c.net.conns, c.id)
	c.out.eofAt = latest(c.out.last, c.net.arrivalLocked(c.out.link, 0))
	c.in.goneAt = time.Now()
	c.wakeLocked()
	c.read.set(time.Time{})
	c.write.set(time.Time{})
	return nil
}

// resetLocked breaks this end: bytes under way in both directions are lost.
func (c *conn) resetLocked() {
	if c.closed || c.broken != nil {
		return
	}
	c.broken = syscall.ECONNRESET
	delete(c.net.conns, c.id)
	c.wakeLocked()
}

// wakeLocked makes all who wait at either end look again.
func (c *conn) wakeLocked() {
	c.in.wakeLocked()
	c.out.wakeLocked()
}

// uses reports whether the connection sends or receives over a link.
func (c *conn) uses(l *link) bool { return c.in.link == l || c.out.link == l }

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.read, t) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.write, t) }

func (c *conn) setDeadline(d *deadline, t time.Time) error {
	c.net.mu.Lock()
	closed := c.closed
	c.net.mu.Unlock()
	if closed {
		return c.fail("set", net.ErrClosed)
	}
	d.set(t)
	return nil
}

// fail names the operation in an error, except io.EOF, which callers compare.
func (c *conn) fail(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}
