package locks

import (
	"sync"

	"github.com/quorate/quorate/fsm/lock"
)

// Session is the locks of one connection. Safe for concurrent use.
type Session struct {
	id lock.Session

	// mu protects the fields below.
	mu sync.Mutex
	// groups are those to which requests went.
	groups map[uint32]struct{}
	// told is the greatest token that the client was told of, by group.
	told map[uint32]uint64
	// unsettled are the locks of requests that are not over, and count those requests.
	unsettled map[string]*unsettled
	count     int
	ended     bool
}

// unsettled is what requests for one lock must know of each other while they are not over.
type unsettled struct {
	requests int
	// granted is the token that the client was last told of, and doomed the one that it
	// must not be told of, because it is being released.
	granted, doomed uint64
}

// maxUnsettled bounds the requests of a session that are not over.
const maxUnsettled = 4 * lock.MaxLocks

// NewSession returns the session of a new connection.
func (s *Service) NewSession() *Session {
	return &Session{
		id:     lock.Session{Gateway: s.cfg.Gateway, Number: s.sessions.Add(1)},
		groups: map[uint32]struct{}{}, told: map[uint32]uint64{}, unsettled: map[string]*unsettled{},
	}
}

// enter notes that the session has to do with the group of a request, and that the request
// is not over until leave.
func (s *Service) enter(r *pending) error {
	session := r.session
	session.mu.Lock()
	defer session.mu.Unlock()
	if session.ended {
		return ErrEnded
	}
	if session.count >= maxUnsettled {
		return ErrFull
	}
	r.before = session.told[r.group]
	session.hold(r.ask.Name)
	if _, known := session.groups[r.group]; !known {
		session.groups[r.group] = struct{}{}
		s.mu.Lock()
		s.groups[r.group]++
		s.mu.Unlock()
	}
	return nil
}

// hold counts a request for a lock; the session is locked.
func (s *Session) hold(name string) {
	if s.unsettled[name] == nil {
		s.unsettled[name] = &unsettled{}
	}
	s.unsettled[name].requests++
	s.count++
}

// leave undoes hold.
func (s *Session) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	if u := s.unsettled[name]; u.requests > 1 {
		u.requests--
	} else {
		delete(s.unsettled, name)
	}
}
