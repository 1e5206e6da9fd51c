package mux

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// maxLearned bounds what strangers can write into the address book: beyond it,
	// only ids that SetPeerAddr named are kept up to date.
	maxLearned = 4096
	// redialDelay is how long a failed dial answers for further calls.
	redialDelay = 100 * time.Millisecond
)

// entry is what is known of one peer. Its fields are protected by Mux.mu.
type entry struct {
	addr    string   // empty when not known
	client  *client  // the call connection, nil or down when there is none
	dialing *attempt // nil when no dial is under way
	// failure answers calls until failedUntil.
	failure     error
	failedUntil time.Time
}

// attempt is a dial that several calls wait for. done is closed when client or err
// is set.
type attempt struct {
	done   chan struct{}
	client *client
	err    error
}

// SetPeerAddr says where a server id is reached. When that changes, the peer's
// connections are dropped. An empty address forgets the old one.
func (m *Mux) SetPeerAddr(id raft.ServerID, addr string) { m.setAddr(id, addr, true) }

// PeerAddr returns where a server id is reached, from SetPeerAddr or from the peer's
// own last handshake, whichever was later.
func (m *Mux) PeerAddr(id raft.ServerID) (string, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e := m.book[id]
	if e == nil || e.addr == "" {
		return "", false
	}
	return e.addr, true
}

// learn notes what a peer says about itself. A peer that dialed knows its address
// best; one that was dialed has just been reached at an address that works.
func (m *Mux) learn(p Peer, itDialed bool) {
	if p.ID == "" || p.ID == m.id {
		return
	}
	if _, _, err := net.SplitHostPort(p.Addr); err != nil {
		return
	}
	if _, known := m.PeerAddr(p.ID); known && !itDialed {
		return
	}
	m.setAddr(p.ID, p.Addr, false)
}

func (m *Mux) setAddr(id raft.ServerID, addr string, trusted bool) {
	m.mu.Lock()
	e := m.book[id]
	if e == nil {
		if !trusted && len(m.book) >= maxLearned {
			m.mu.Unlock()
			return
		}
		e = &entry{}
		m.book[id] = e
	}
	moved := e.addr != "" && e.addr != addr
	if e.addr != addr {
		e.addr, e.client, e.dialing = addr, nil, nil
	}
	e.failure = nil // it is worth a try again
	m.mu.Unlock()
	if moved {
		m.log.Info("peer has moved", "node", id, "addr", addr)
		m.DropPeer(id)
	}
}

// DropPeer closes all connections with a peer, whoever dialed them. What needs them
// dials again. Calls in progress end with ErrNoReply.
func (m *Mux) DropPeer(id raft.ServerID) {
	m.mu.Lock()
	if e := m.book[id]; e != nil {
		e.client, e.failure = nil, nil
	}
	m.mu.Unlock()
	m.conns.abort(func(c *peerConn) bool { return c.peer.ID == id })
}

// Refuse retires a server id: its connections are closed and its handshakes are
// answered with RefusedRemoved from now on, until the Mux is closed. This node can
// still dial it.
func (m *Mux) Refuse(id raft.ServerID) {
	m.mu.Lock()
	m.refused[id] = true
	m.mu.Unlock()
	m.DropPeer(id)
}

// client returns the call connection to a peer, and makes it if need be.
func (m *Mux) client(ctx context.Context, id raft.ServerID) (*client, error) {
	if c := m.readyClient(id); c != nil {
		return c, nil
	}
	a, err := m.attempt(id)
	if err != nil {
		return nil, err
	}
	select {
	case <-a.done:
		return a.client, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *Mux) readyClient(id raft.ServerID) *client {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if e := m.book[id]; e != nil && e.client != nil && !e.client.isDown() {
		return e.client
	}
	return nil
}

// attempt returns the dial to wait for, and starts one unless it is under way.
func (m *Mux) attempt(id raft.ServerID) (*attempt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.book[id]
	switch {
	case m.closed:
		return nil, ErrClosed
	case e == nil || e.addr == "":
		return nil, errNoAddress
	case e.client != nil && !e.client.isDown():
		return &attempt{done: closedChan(), client: e.client}, nil
	case e.dialing != nil:
		return e.dialing, nil
	case e.failure != nil && time.Now().Before(e.failedUntil):
		return nil, e.failure
	}
	a, addr := &attempt{done: make(chan struct{})}, e.addr
	e.dialing = a
	m.running.Go(func() { m.connect(id, addr, a) })
	return a, nil
}

// connect dials a peer and completes the attempt.
func (m *Mux) connect(id raft.ServerID, addr string, a *attempt) {
	defer close(a.done)
	conn, err := m.dial(m.ctx, addr, hello{kind: kindCalls, target: string(id)}, nil)
	var c *client
	if err == nil {
		c = newClient(conn, &m.cfg)
		c.start(m.spawn)
	}
	m.mu.Lock()
	e := m.book[id]
	if e.dialing != a { // the address has changed meanwhile
		m.mu.Unlock()
		if c != nil {
			c.fail(errMoved)
		}
		a.err = fmt.Errorf("%s: %w", addr, errMoved)
		return
	}
	e.dialing, e.client, e.failure = nil, c, err
	e.failedUntil = time.Now().Add(redialDelay)
	a.client, a.err = c, err
	m.mu.Unlock()
}

func closedChan() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
