package mux

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// acceptQueue is how many streams of a group may wait for Accept.
const acceptQueue = 16

// streamLayer carries the streams of one Raft group. It implements raft.StreamLayer.
type streamLayer struct {
	mux      *Mux
	group    uint32
	incoming chan *peerConn
	closing  sync.Once
	closed   chan struct{} // closed by Close
}

// StreamLayer attaches a Raft group, for raft.NewNetworkTransportWithConfig: from
// now on its streams are accepted. Addresses are server ids; Dial finds out where
// the id is reached at that moment. Closing the layer, as the transport does, closes
// the streams of this group and no others; the group can then be attached again. It
// panics when the group is attached. A layer of a closed Mux is closed.
func (m *Mux) StreamLayer(group uint32) raft.StreamLayer {
	l := &streamLayer{mux: m, group: group, incoming: make(chan *peerConn, acceptQueue), closed: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.layers[group] != nil {
		panic(fmt.Sprintf("mux: group %d is already attached", group))
	}
	if m.closed {
		l.closing.Do(func() { close(l.closed) })
	} else {
		m.layers[group] = l
	}
	return l
}

// Accept implements net.Listener.
func (l *streamLayer) Accept() (net.Conn, error) {
	select {
	case <-l.closed: // before the queue: what waits there is being closed
		return nil, l.closedError("accept")
	default:
	}
	select {
	case conn := <-l.incoming:
		return conn, nil
	case <-l.closed:
		return nil, l.closedError("accept")
	}
}

// Dial implements raft.StreamLayer. A timeout of 0 means HandshakeTimeout.
func (l *streamLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	m, id := l.mux, raft.ServerID(address)
	addr, ok := m.PeerAddr(id)
	if !ok {
		return nil, fmt.Errorf("dial %s: %w: %w", id, ErrUnreachable, errNoAddress)
	}
	if timeout <= 0 {
		timeout = m.cfg.HandshakeTimeout
	}
	ctx, cancel := context.WithTimeout(m.ctx, timeout)
	defer cancel()
	conn, err := m.dial(ctx, addr, hello{kind: kindStream, target: string(id), group: l.group}, l)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", id, err)
	}
	select {
	case <-l.closed:
		_ = conn.Close()
		return nil, l.closedError("dial")
	default:
		return conn, nil
	}
}

// Close implements net.Listener.
func (l *streamLayer) Close() error {
	l.closing.Do(func() {
		l.mux.mu.Lock()
		if l.mux.layers[l.group] == l {
			delete(l.mux.layers, l.group)
		}
		l.mux.mu.Unlock()
		close(l.closed)
		l.mux.conns.closeGently(func(c *peerConn) bool { return c.layer == l })
	})
	return nil
}

// Addr implements net.Listener: the server id of this node.
func (l *streamLayer) Addr() net.Addr { return logicalAddr(l.mux.id) }

// offer hands an accepted stream to Accept, and waits a while for it.
func (l *streamLayer) offer(conn *peerConn) {
	timer := time.NewTimer(l.mux.cfg.HandshakeTimeout)
	defer timer.Stop()
	select {
	case l.incoming <- conn:
		select {
		case <-l.closed: // perhaps after Close looked for connections
			_ = conn.Close()
		default:
		}
		return
	case <-l.closed:
	case <-timer.C:
		l.mux.log.Warn("nobody accepts the streams of a group", "group", l.group, "node", conn.peer.ID)
	}
	_ = conn.Close()
}

func (l *streamLayer) closedError(op string) error {
	return &net.OpError{Op: op, Net: "raft", Addr: l.Addr(), Err: net.ErrClosed}
}

// logicalAddr is a server id as a net.Addr.
type logicalAddr raft.ServerID

// Network implements net.Addr.
func (logicalAddr) Network() string { return "raft" }

// String returns the server id.
func (a logicalAddr) String() string { return string(a) }
