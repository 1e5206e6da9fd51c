package mux

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// client is the dialer's end of a call connection.
type client struct {
	*link
	window chan struct{} // has a token for each call in progress

	mu      sync.Mutex // protects the fields below
	pending map[uint64]*call
	lastID  uint64
	ended   bool // no more calls: the link is down

	calls sync.Pool // of *call, none of them pending
}

// call waits for its reply. done receives exactly one result once the call is no
// longer pending, unless the caller forgot it first.
type call struct{ done chan result }

type result struct {
	body []byte
	err  error
}

func newClient(conn *peerConn, cfg *Config) *client {
	c := &client{
		link:    newLink(conn, cfg),
		window:  make(chan struct{}, conn.window),
		pending: make(map[uint64]*call),
	}
	c.calls.New = func() any { return &call{done: make(chan result, 1)} }
	return c
}

// start runs the client's goroutines; spawn reports false when it may not.
func (c *client) start(spawn func(func()) bool) bool {
	ok := spawn(c.readLoop) && spawn(c.writeLoop) && spawn(func() { c.watch(true) })
	if !ok {
		c.fail(ErrClosed)
	}
	return ok
}

// do makes one call. errNotSent marks an error after which nothing was sent.
func (c *client) do(ctx context.Context, method Method, body []byte) ([]byte, error) {
	select {
	case c.window <- struct{}{}:
		defer func() { <-c.window }()
	case <-c.down:
		return nil, &unsentError{c.err}
	case <-ctx.Done():
		return nil, &unsentError{ctx.Err()}
	}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	id, ok := c.register(k)
	if !ok {
		return nil, &unsentError{errLinkClosed}
	}
	h := header{kind: frameRequest, code: uint16(method), id: id, timeoutMillis: remainingMillis(ctx)}
	if err := c.out.put(ctx, h, body); err != nil {
		c.forget(id, k)
		return nil, &unsentError{err}
	}
	select {
	case r := <-k.done:
		return r.body, r.err
	case <-ctx.Done():
	}
	if r, came := c.forget(id, k); came {
		return r.body, r.err
	}
	// Without room for it the cancel is not worth waiting: it only saves work.
	_, _ = c.out.tryPut(header{kind: frameCancel, id: id}, nil)
	return nil, fmt.Errorf("%w: %w", ErrNoReply, ctx.Err())
}

// unsentError marks an error before which nothing was sent.
type unsentError struct{ cause error }

// Error implements error.
func (e *unsentError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *unsentError) Unwrap() error { return e.cause }

func (c *client) register(k *call) (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return 0, false
	}
	c.lastID++
	c.pending[c.lastID] = k
	return c.lastID, true
}

// forget makes a call no longer pending. If its result came first, that is returned.
func (c *client) forget(id uint64, k *call) (result, bool) {
	c.mu.Lock()
	_, pending := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if pending {
		return result{}, false
	}
	return <-k.done, true
}

// readLoop hands replies to their callers until the link ends, and then tells all
// callers that none will come.
func (c *client) readLoop() {
	var err error
	for err == nil {
		err = c.readFrame()
	}
	c.fail(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for id, k := range c.pending {
		delete(c.pending, id)
		k.done <- result{err: fmt.Errorf("%w: %w", ErrNoReply, c.err)}
	}
}

func (c *client) readFrame() error {
	h, err := c.in.next()
	if err != nil {
		return err
	}
	switch h.kind {
	case framePong:
		return c.in.skip(h)
	case frameReply, frameError:
	default:
		return fmt.Errorf("%w: frame kind %d in a reply", errMalformed, h.kind)
	}
	c.mu.Lock()
	_, wanted := c.pending[h.id]
	c.mu.Unlock()
	if !wanted { // the caller gave up
		return c.in.skip(h)
	}
	body, err := c.in.body(h)
	if err != nil {
		return err
	}
	r := result{body: body}
	if h.kind == frameError {
		r = result{err: &RemoteError{Code: h.code, Text: string(body)}}
	}
	c.mu.Lock()
	k := c.pending[h.id]
	delete(c.pending, h.id)
	c.mu.Unlock()
	if k != nil {
		k.done <- r
	}
	return nil
}

// remainingMillis is how long the caller waits, rounded up so that it is never 0.
func remainingMillis(ctx context.Context) uint32 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(deadline).Milliseconds() + 1
	return uint32(min(max(left, 1), math.MaxUint32))
}

// unsent reports whether err says that nothing was sent.
func unsent(err error) bool {
	if err == nil {
		return false
	}
	var e *unsentError
	return errors.As(err, &e)
}
