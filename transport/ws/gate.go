package ws

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// gate bounds the operations under way on the whole node, in number and in the
// bytes of the frames they came in.
type gate struct {
	wait  time.Duration
	ops   slots
	bytes *semaphore.Weighted
}

func newGate(cfg Config) *gate {
	return &gate{
		wait:  cfg.OverloadWait,
		ops:   slots{limit: cfg.MaxConcurrentOperations},
		bytes: semaphore.NewWeighted(cfg.MaxInFlightBytes),
	}
}

// enter admits an operation whose frame has the given size. It waits a little for
// room; errOverloaded means that there was none, or that ctx ended.
func (g *gate) enter(ctx context.Context, size int) error {
	if g.ops.try() {
		if g.bytes.TryAcquire(int64(size)) {
			return nil
		}
		g.ops.leave()
	}
	ctx, cancel := context.WithTimeout(ctx, g.wait)
	defer cancel()
	if g.bytes.Acquire(ctx, int64(size)) != nil {
		return errOverloaded
	}
	if !g.ops.enter(ctx) {
		g.bytes.Release(int64(size))
		return errOverloaded
	}
	return nil
}

// leave ends an operation that enter has admitted.
func (g *gate) leave(size int) {
	g.ops.leave()
	g.bytes.Release(int64(size))
}

func (g *gate) inUse() int { return g.ops.inUse() }

// slots is a number of places that can be changed while they are in use.
type slots struct {
	// mu protects the fields below.
	mu          sync.Mutex
	limit, used int
	// waiting are those who want a place, in their order; each is closed when it has one.
	waiting []chan struct{}
}

// try takes a place if there is one.
func (s *slots) try() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.limit || len(s.waiting) > 0 {
		return false
	}
	s.used++
	return true
}

// enter waits for a place until ctx ends, and reports whether it got one.
func (s *slots) enter(ctx context.Context) bool {
	if s.try() {
		return true
	}
	turn := make(chan struct{})
	s.mu.Lock()
	s.waiting = append(s.waiting, turn)
	s.fillLocked()
	s.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, turn)
	if i < 0 {
		return true // it came meanwhile
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return false
}

func (s *slots) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.fillLocked()
}

// resize changes the number of places. Those in use beyond it stay until they are left.
func (s *slots) resize(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	s.fillLocked()
}

// fillLocked gives free places to who waits.
func (s *slots) fillLocked() {
	for s.used < s.limit && len(s.waiting) > 0 {
		s.used++
		close(s.waiting[0])
		s.waiting = slices.Delete(s.waiting, 0, 1)
	}
}

func (s *slots) inUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}
