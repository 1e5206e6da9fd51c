package bench

import (
	"context"
	"fmt"
	"strconv"

	"github.com/quorate/quorate/protocol"
)

// lockWaiters is how many clients wait while one holds the lock.
const lockWaiters = 10

// lockPatience is how long a client waits for a lock, in milliseconds.
var lockPatience = int64(60_000)

// worker is what the connection does again and again. Of a batch each write is an
// operation; of a lock the request and the release are, each an entry of the log. With
// waiters, half as many hand-overs are made as operations.
func (c *client) worker(kind string) worker {
	switch kind {
	case "lock":
		return func(ctx context.Context) (int, error) { return 2, c.lock(ctx, "bench-"+strconv.Itoa(c.id)) }
	case "handover":
		return func(ctx context.Context) (int, error) { return 2, c.lock(ctx, "bench") }
	default:
		return func(ctx context.Context) (int, error) { return c.options.Batch, c.write(ctx, c.options.Batch) }
	}
}

// lock takes a lock and releases it.
func (c *client) lock(ctx context.Context, name string) error {
	c.nextID++
	id := strconv.FormatUint(c.nextID, 10)
	if err := c.send(ctx, &protocol.LockRequest{RequestID: id, Name: name, WaitMillis: &lockPatience}); err != nil {
		return err
	}
	for {
		m, err := c.receive(ctx)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *protocol.LockGranted:
			if err := c.send(ctx, &protocol.LockRelease{RequestID: id, Name: name, FencingToken: m.FencingToken}); err != nil {
				return err
			}
		case *protocol.LockReleased:
			if m.RequestID == id && m.Success {
				return nil
			}
			return fmt.Errorf("%w: %s", errRefused, m.Reason)
		case *protocol.ErrorMessage:
			return fmt.Errorf("%w: %d %s", errRefused, m.Code, m.Message)
		}
	}
}
