package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/e2e/chaos/check"
)

// lines counts the connections of a Go client that have ended.
type lines struct{ ended atomic.Int64 }

// changed is told of every change of the client's status.
func (l *lines) changed(s client.Status) {
	if !s.Connected {
		l.ended.Add(1)
	}
}

// kept reports whether the connection lives that lived when before were ended. The client
// takes a connection out of its status before it lets go of the locks, and counts it before
// there is another one; so the order here matters.
func (l *lines) kept(api *client.Client, before int64) bool {
	return api.Status().Connected && l.ended.Load() == before
}

// holder is a Go client that holds a lock, and what it knows of it.
type holder struct {
	*caller
	api   *client.Client
	lock  *client.Lock
	lease time.Duration
	// ended is how many connections had ended before it asked for the lock.
	ended int64
}

// take takes a lock by the Go client.
func (c *caller) take(ctx context.Context, api *client.Client, name string, lease, wait time.Duration) (*holder, bool) {
	h := &holder{caller: c, api: api, lease: lease, ended: c.lines.ended.Load()}
	op := c.begin(check.Acquire, name, "")
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var err error
	if h.lock, err = api.Lock(waiting, name, client.WithLease(lease)); err != nil {
		return nil, false
	}
	c.session++
	// The client counts on 7/8 of the lease from no earlier than this call.
	op.Token, op.Until = h.lock.Token(), op.Call+int64(lease/8*7)
	c.finish(op, nil)
	return h, true
}

// occupy takes a lock, writes in its protection, for longer than the lease at times, and gives
// it back.
func (w *locks) occupy(ctx context.Context, c *caller, api *client.Client, name string) {
	lease := time.Duration(1000+c.rng.IntN(3000)) * time.Millisecond
	h, ok := c.take(ctx, api, name, lease, 4*time.Second)
	if !ok {
		return
	}
	stop := h.watch()
	defer stop()
	for c.rng.IntN(3) > 0 {
		_ = h.write(ctx, w.resources, w.resource(c, name)) // it is noted what became of it
		pause := 300 * time.Millisecond
		if c.rng.IntN(12) == 0 {
			pause = 3 * lease
		}
		c.rest(ctx, pause)
	}
	_ = h.release(ctx)
}

// watch notes when the lock is lost, until stop is called.
func (h *holder) watch() (stop func()) {
	op := h.begin(check.Lost, h.lock.Name(), "")
	op.Token, op.Outcome, op.Session, op.Node = h.lock.Token(), check.Failed, h.session, check.AnyNode
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-h.lock.Lost():
			op.Refused = h.lines.kept(h.api, h.ended)
			op.Call = h.load.round.run.now()
			op.Return = op.Call
			h.load.history.Add(op)
		case <-over:
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// write writes to the resource. An answer to a holder who holds the lock after it came over
// the connection of the grant: the client lets go of a lock before it has another connection.
// What says so is noted.
func (h *holder) write(ctx context.Context, mapName, key string) error {
	op := h.begin(check.Fenced, h.lock.Name(), h.value())
	op.Token, op.Resource = h.lock.Token(), key
	_, err := h.api.Map(mapName).Put(ctx, key, op.Value, client.ServerStamp(), client.Fenced(h.lock.Fence()))
	h.finish(op, err)
	now := h.load.round.run.now()
	if (err == nil || errors.Is(err, client.ErrRefused)) && h.lock.Held() {
		op.Kind, op.Value, op.Resource, op.Until, op.Return = check.Held, "", "", now, now
		op.Node, op.Outcome, op.Session = check.AnyNode, check.OK, h.session
		h.load.history.Add(op)
	}
	return err
}

// release gives the lock back. A confirmed release proves that it was held until then, and
// the refusal of one that comes while the lock is held is wrong if it comes at once: an eighth
// of the lease is left.
func (h *holder) release(ctx context.Context) error {
	op := h.begin(check.Release, h.lock.Name(), "")
	op.Token = h.lock.Token()
	held := h.lock.Held()
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	err := h.lock.Release(releasing)
	op.Node, op.Outcome = check.AnyNode, check.Unknown
	switch {
	case err == nil:
		op.Outcome, op.Until = check.OK, op.Call
	case held && errors.Is(err, client.ErrLockLost):
		op.Outcome, op.Until = check.Failed, op.Call+int64(h.lease/8)
		op.Refused = h.lines.kept(h.api, h.ended)
	}
	h.end(op)
	return err
}

// renewed has the Go client hold a lock for longer than its lease, and wants it to be held
// then. Renewals may come late on a busy machine, so one of a few attempts counts.
func (w *locks) renewed(ctx context.Context, name string) error {
	const attempts, lease = 4, 4 * time.Second
	c := w.caller(nil)
	api, err := client.Open(ctx, client.Config{Seeds: c.seeds(), ClientID: c.name, OnStatus: c.lines.changed})
	if err != nil {
		return fmt.Errorf("open a client: %w", err)
	}
	defer api.Close()
	for range attempts {
		if err = w.outlasts(ctx, c, api, name, lease); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("in %d attempts: %w", attempts, err)
}

// outlasts holds the lock for one and a half times its lease.
func (w *locks) outlasts(ctx context.Context, c *caller, api *client.Client, name string, lease time.Duration) error {
	h, ok := c.take(ctx, api, name, lease, 20*time.Second)
	if !ok {
		return errors.New("it was not granted")
	}
	stop := h.watch()
	defer stop()
	select {
	case <-h.lock.Lost():
	case <-ctx.Done():
	case <-time.After(lease + lease/2):
	}
	return errors.Join(h.write(ctx, w.resources, w.resource(c, name)), h.release(ctx))
}
