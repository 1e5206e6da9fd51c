package mux

import (
	"container/list"
	"net"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// peerConn is a connection after its handshake. Reads and writes are those of the
// embedded connection, encrypted if there is a secret.
type peerConn struct {
	net.Conn
	raw    net.Conn // what Conn runs over, or the same
	set    *connSet
	peer   Peer
	dialed bool // by this node
	// layer is the Raft group's, nil for call connections.
	layer *streamLayer
	// window is how many calls the peer allows, on dialed call connections.
	window int
}

// Close implements net.Conn: the other end sees the end of the stream.
func (c *peerConn) Close() error {
	c.set.remove(c)
	return c.Conn.Close()
}

// abort closes without saying goodbye, which cannot block.
func (c *peerConn) abort() {
	c.set.remove(c)
	// The connection is given up whatever the error.
	_ = c.raw.Close()
}

// connSet holds the open connections, so that they can be closed by others than
// their users: a Raft transport waits in Read without a deadline.
type connSet struct {
	gauge *prometheus.GaugeVec

	mu      sync.Mutex // protects the fields below
	open    map[*peerConn]struct{}
	inbound int
	closed  bool
}

func newConnSet(gauge *prometheus.GaugeVec) *connSet {
	return &connSet{gauge: gauge, open: make(map[*peerConn]struct{})}
}

// add takes a connection in. It fails when the set is closed, or when there are
// already maxInbound accepted ones and this is another.
func (s *connSet) add(c *peerConn, maxInbound int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case !c.dialed && s.inbound >= maxInbound:
		return errTooMany
	}
	s.open[c] = struct{}{}
	if !c.dialed {
		s.inbound++
	}
	s.gaugeOf(c).Inc()
	return nil
}

func (s *connSet) remove(c *peerConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[c]; !ok {
		return
	}
	delete(s.open, c)
	if !c.dialed {
		s.inbound--
	}
	s.gaugeOf(c).Dec()
}

func (s *connSet) gaugeOf(c *peerConn) prometheus.Gauge {
	direction, carries := "in", "calls"
	if c.dialed {
		direction = "out"
	}
	if c.layer != nil {
		carries = "raft"
	}
	return s.gauge.WithLabelValues(direction, carries)
}

// matching returns the open connections that match.
func (s *connSet) matching(match func(*peerConn) bool) []*peerConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*peerConn
	for c := range s.open {
		if match(c) {
			found = append(found, c)
		}
	}
	return found
}

// abort closes the connections that match without goodbye.
func (s *connSet) abort(match func(*peerConn) bool) {
	for _, c := range s.matching(match) {
		c.abort()
	}
}

// closeGently closes the connections that match, all at a time: with TLS each may
// have to wait a while for room for its goodbye.
func (s *connSet) closeGently(match func(*peerConn) bool) {
	var closing sync.WaitGroup
	for _, c := range s.matching(match) {
		// The connection is given up whatever the error.
		closing.Go(func() { _ = c.Close() })
	}
	closing.Wait()
}

// close closes everything and takes nothing more in.
func (s *connSet) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.closeGently(func(*peerConn) bool { return true })
}

// handshakes holds the accepted connections that have not greeted yet.
type handshakes struct {
	max int

	mu     sync.Mutex // protects the fields below
	oldest *list.List // of net.Conn
	closed bool
}

func newHandshakes(limit int) *handshakes { return &handshakes{max: limit, oldest: list.New()} }

// add takes a connection in and closes the oldest one when there are too many. The
// caller calls remove at the end of the handshake.
func (h *handshakes) add(conn net.Conn) (remove func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, false
	}
	if h.oldest.Len() >= h.max {
		// Its handshake fails and reports what there is to report.
		_ = h.oldest.Remove(h.oldest.Front()).(net.Conn).Close()
	}
	e := h.oldest.PushBack(conn)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.oldest.Remove(e)
	}, true
}

// close ends all handshakes and takes nothing more in.
func (h *handshakes) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for e := h.oldest.Front(); e != nil; e = e.Next() {
		_ = e.Value.(net.Conn).Close()
	}
}
