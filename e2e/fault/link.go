package fault

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Link is one direction between two nodes, by name.
type Link struct{ From, To string }

// String is the link as From->To.
func (l Link) String() string { return l.From + "->" + l.To }

// Reverse is the other direction.
func (l Link) Reverse() Link { return Link{From: l.To, To: l.From} }

// Conditions are how a link behaves. The zero value is a healthy link.
type Conditions struct {
	// Cut holds all bytes back.
	Cut bool
	// Refuse resets new connections dialed along the link. It does not touch those
	// that exist; see Network.Reset.
	Refuse bool
	// Delay is added to every byte, and up to Jitter more, without reordering.
	Delay, Jitter time.Duration
	// BytesPerSecond bounds the throughput of each connection; 0 is unbounded.
	BytesPerSecond int
}

// String names what is wrong with the link.
func (c Conditions) String() string {
	if c == (Conditions{}) {
		return "healthy"
	}
	return fmt.Sprintf("cut=%t refuse=%t delay=%v+%v rate=%d", c.Cut, c.Refuse, c.Delay, c.Jitter, c.BytesPerSecond)
}

// latency is how long the next bytes are under way.
func (c Conditions) latency() time.Duration {
	if c.Jitter <= 0 {
		return c.Delay
	}
	return c.Delay + rand.N(c.Jitter)
}

// state is the current Conditions of one link.
type state struct {
	// mu protects the fields below.
	mu      sync.Mutex
	current Conditions
	// changed is closed and replaced at every change.
	changed chan struct{}
}

func newState() *state { return &state{changed: make(chan struct{})} }

func (s *state) set(c Conditions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = c
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *state) get() (Conditions, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.changed
}

// pass waits while the link is cut. It reports whether the bytes may go on, which
// they may not when done is closed first.
func (s *state) pass(done <-chan struct{}) (Conditions, bool) {
	for {
		c, changed := s.get()
		if !c.Cut {
			return c, true
		}
		select {
		case <-changed:
		case <-done:
			return c, false
		}
	}
}
