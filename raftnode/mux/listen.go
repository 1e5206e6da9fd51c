package mux

import (
	"errors"
	"net"
	"sync"
	"time"
)

func (m *Mux) acceptLoop() {
	const shortest, longest = 5 * time.Millisecond, time.Second
	delay := shortest
	for {
		raw, err := m.listener.Accept()
		switch {
		case m.ctx.Err() != nil:
			if err == nil {
				_ = raw.Close()
			}
			return
		case err != nil:
			// Most likely the process has too many open files: connections will end.
			m.log.Error("cannot accept peer connections", "err", err, "retry", delay)
			select {
			case <-time.After(delay):
			case <-m.ctx.Done():
			}
			delay = min(2*delay, longest)
		default:
			delay = shortest
			m.begin(raw)
		}
	}
}

// begin runs an accepted connection in a goroutine. It is registered before, so that
// the oldest handshake is the one that was accepted first.
func (m *Mux) begin(raw net.Conn) {
	greeted, ok := m.greeting.add(raw)
	if !ok || !m.spawn(func() { m.serve(raw, greeted) }) {
		_ = raw.Close()
	}
}

// serve runs an accepted connection; it calls greeted when the handshake is over.
func (m *Mux) serve(raw net.Conn, greeted func()) {
	conn, err := m.welcome(raw)
	greeted()
	switch {
	case err != nil:
		m.reportRefusal(raw.RemoteAddr(), err)
	case conn.layer != nil:
		conn.layer.offer(conn)
	default:
		m.serveCalls(conn)
	}
}

// reportRefusal logs a failed handshake: loudly, but once for each host, when the
// other end may be a misconfigured node.
func (m *Mux) reportRefusal(remote net.Addr, err error) {
	var refused *RefusedError
	host, _, splitErr := net.SplitHostPort(remote.String())
	if splitErr != nil {
		host = remote.String()
	}
	switch {
	case m.ctx.Err() != nil:
	case errors.Is(err, ErrWrongSecret) && m.warned.first(host):
		m.log.Warn("peer does not have the secret of this cluster", "conn", remote, "err", err)
	case errors.As(err, &refused) && refused.Code != RefusedUnknownGroup && m.warned.first(host+refused.Code.String()):
		m.log.Warn("peer refused", "conn", remote, "err", err)
	default:
		m.log.Debug("handshake with peer ended", "conn", remote, "err", err)
	}
}

// onceSet remembers what was already reported. It forgets everything when it is
// full, so strangers cannot make it grow.
type onceSet struct {
	mu   sync.Mutex // protects seen
	seen map[string]struct{}
}

func (s *onceSet) first(key string) bool {
	const full = 1024
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.seen[key]; ok {
		return false
	}
	if s.seen == nil || len(s.seen) >= full {
		s.seen = make(map[string]struct{})
	}
	s.seen[key] = struct{}{}
	return true
}
