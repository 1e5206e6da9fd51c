package ws

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// gate bounds the operations under way on the whole node, in number and in the
// bytes of the frames they came in.
type gate struct {
	wait  time.Duration
	ops   chan struct{}
	bytes *semaphore.Weighted
}

func newGate(cfg Config) *gate {
	return &gate{
		wait:  cfg.OverloadWait,
		ops:   make(chan struct{}, cfg.MaxConcurrentOperations),
		bytes: semaphore.NewWeighted(cfg.MaxInFlightBytes),
	}
}

// enter admits an operation whose frame has the given size. It waits a little for
// room; errOverloaded means that there was none, or that ctx ended.
func (g *gate) enter(ctx context.Context, size int) error {
	select {
	case g.ops <- struct{}{}:
		if g.bytes.TryAcquire(int64(size)) {
			return nil
		}
		<-g.ops
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, g.wait)
	defer cancel()
	if g.bytes.Acquire(ctx, int64(size)) != nil {
		return errOverloaded
	}
	select {
	case g.ops <- struct{}{}:
		return nil
	case <-ctx.Done():
		g.bytes.Release(int64(size))
		return errOverloaded
	}
}

// leave ends an operation that enter has admitted.
func (g *gate) leave(size int) {
	<-g.ops
	g.bytes.Release(int64(size))
}

func (g *gate) inUse() int { return len(g.ops) }
