package memnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

const (
	firstPort = 10000 // given to the first listener that asks for port 0
	lastPort  = 65535
	backlog   = 128 // connections that wait for Accept; further dials hang
)

// Host is one machine's view of the network: what is dialed through it comes from
// that machine. Get one from Network.Host.
type Host struct {
	net  *Network
	name string

	// Protected by net.mu.
	nextPort  int
	listeners map[int]*listener
}

// Addr is the address of an end of a connection or of a listener.
type Addr struct {
	host string
	port int
}

// Network implements net.Addr.
func (Addr) Network() string { return "mem" }

// String returns host:port.
func (a Addr) String() string { return net.JoinHostPort(a.host, strconv.Itoa(a.port)) }

// Listen binds host:port. The host part must be this host's name, empty, or an
// unspecified IP; port 0 picks a free one.
func (h *Host) Listen(addr string) (net.Listener, error) {
	host, port, err := splitAddr(addr)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); host != "" && host != h.name && (ip == nil || !ip.IsUnspecified()) {
		return nil, opError("listen", Addr{host, port}, syscall.EADDRNOTAVAIL)
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if port == 0 {
		port = h.freePortLocked()
	}
	local := Addr{h.name, port}
	if h.listeners[port] != nil {
		return nil, opError("listen", local, syscall.EADDRINUSE)
	}
	l := &listener{host: h, addr: local, backlog: make(chan *conn, backlog), closed: make(chan struct{})}
	h.listeners[port] = l
	return l, nil
}

// Dial connects to host:port. It takes the latency of both directions and hangs
// while either is cut with Blackhole, until ctx ends. A closed port, or a link cut
// with Reset, refuses.
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	host, port, err := splitAddr(addr)
	if err != nil {
		return nil, err
	}
	remote := Addr{host, port}
	for _, r := range []route{{h.name, host}, {host, h.name}} {
		if err := h.net.travel(ctx, r); err != nil {
			return nil, opError("dial", remote, err)
		}
	}
	l, near, far, err := h.connect(remote)
	if err != nil {
		return nil, opError("dial", remote, err)
	}
	select {
	case l.backlog <- far:
		select {
		case <-l.closed: // perhaps after Close emptied the backlog
			err = syscall.ECONNREFUSED
		default:
			return near, nil
		}
	case <-l.closed:
		err = syscall.ECONNREFUSED
	case <-ctx.Done():
		err = dialError(ctx)
	}
	_ = near.Close()
	_ = far.Close()
	return nil, opError("dial", remote, err)
}

// connect makes the two ends of a connection to a listener.
func (h *Host) connect(remote Addr) (l *listener, near, far *conn, err error) {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	target := n.hosts[remote.host]
	if target == nil {
		return nil, nil, nil, &net.DNSError{Err: "no such host", Name: remote.host, IsNotFound: true}
	}
	l = target.listeners[remote.port]
	if l == nil {
		return nil, nil, nil, syscall.ECONNREFUSED
	}
	local := Addr{h.name, h.freePortLocked()}
	near, far = n.newConnLocked(local, remote)
	return l, near, far, nil
}

func (h *Host) freePortLocked() int {
	for {
		port := h.nextPort
		if h.nextPort++; h.nextPort > lastPort {
			h.nextPort = firstPort
		}
		if h.listeners[port] == nil {
			return port
		}
	}
}

// travel waits as long as a packet takes over a link.
func (n *Network) travel(ctx context.Context, r route) error {
	for {
		if ctx.Err() != nil {
			return dialError(ctx)
		}
		n.mu.Lock()
		l := n.linkLocked(r)
		cut, healed, delay := l.cut, l.healed, n.delayLocked(l)
		n.mu.Unlock()
		switch cut {
		case Reset:
			return syscall.ECONNREFUSED
		case Blackhole:
			select {
			case <-healed:
				continue
			case <-ctx.Done():
				return dialError(ctx)
			}
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			timer.Stop()
			return dialError(ctx)
		}
	}
}

// dialError turns the end of a context into what a dial returns: a timeout is a
// net.Error that says so.
func dialError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return ctx.Err()
}

func splitAddr(addr string) (string, int, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("memnet address: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("memnet address %q: %w", addr, err)
	}
	return host, int(port), nil
}

func opError(op string, addr Addr, err error) error {
	return &net.OpError{Op: op, Net: Addr{}.Network(), Addr: addr, Err: err}
}

// listener implements net.Listener.
type listener struct {
	host    *Host
	addr    Addr
	backlog chan *conn
	closed  chan struct{} // closed by closeLocked
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed: // before the backlog: what waits there is being reset
		return nil, opError("accept", l.addr, net.ErrClosed)
	default:
	}
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, opError("accept", l.addr, net.ErrClosed)
	}
}

// Close implements net.Listener. Connections not accepted yet are reset.
func (l *listener) Close() error {
	l.host.net.mu.Lock()
	defer l.host.net.mu.Unlock()
	if l.host.listeners[l.addr.port] != l {
		return opError("close", l.addr, net.ErrClosed)
	}
	l.closeLocked()
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) closeLocked() {
	delete(l.host.listeners, l.addr.port)
	close(l.closed)
	for {
		select {
		case c := <-l.backlog:
			c.resetLocked()
			c.peer.resetLocked()
		default:
			return
		}
	}
}
