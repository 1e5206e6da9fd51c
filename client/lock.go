package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/protocol"
)

const (
	// DefaultLease is the lease of a lock that asks for none.
	DefaultLease = 15 * time.Second
	// minLease is the shortest lease: below it, renewals are late on any busy machine.
	minLease = 200 * time.Millisecond
	// longWait is how long one request waits for a lock when the caller has no deadline.
	longWait = 10 * time.Minute
	// askAgain is the pause before a request is repeated that came to nothing.
	askAgain = 50 * time.Millisecond
)

// lockName lets one caller of this client at a time ask for a lock and hold it. To the server
// they are one session, which would be granted what it holds already.
type lockName struct {
	turn chan struct{}
	// users counts those who hold it or wait, under Client.mu.
	users int
}

type lockOptions struct {
	lease time.Duration
	// every is the pace of renewals; zero is a quarter of the lease.
	every time.Duration
}

// LockOption changes how a lock is held.
type LockOption func(*lockOptions)

// WithLease sets for how long the lock is held without renewal, 15 s by default and at least
// 200 ms. It is how long others wait when the holder or its node dies.
func WithLease(lease time.Duration) LockOption { return func(o *lockOptions) { o.lease = lease } }

// Lock waits until it holds a lock, also over new connections, and keeps it until Release,
// or until it is lost: see Lock.Lost. It gives up when ctx ends, with ErrNotGranted; the
// operation timeout does not apply. Callers of one client wait for each other like others.
func (c *Client) Lock(ctx context.Context, name string, opts ...LockOption) (*Lock, error) {
	return c.lock(ctx, name, false, opts)
}

// TryLock takes a lock if nobody holds it, and returns ErrNotGranted otherwise.
func (c *Client) TryLock(ctx context.Context, name string, opts ...LockOption) (*Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.OperationTimeout)
	defer cancel()
	return c.lock(ctx, name, true, opts)
}

func (c *Client) lock(ctx context.Context, name string, once bool, opts []LockOption) (*Lock, error) {
	o := lockOptions{lease: DefaultLease}
	for _, opt := range opts {
		opt(&o)
	}
	if o.lease < minLease {
		return nil, fmt.Errorf("lock %q: lease %v is shorter than %v", name, o.lease, minLease)
	}
	if o.every == 0 {
		o.every = o.lease / 4
	}
	leave, err := c.takeTurn(ctx, name, once)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	for {
		l, err := c.acquire(ctx, name, o, once)
		if err == nil {
			l.begin(leave)
			return l, nil
		}
		if once || errors.Is(err, ErrRefused) || errors.Is(err, ErrClosed) || !pause(ctx, askAgain) {
			leave()
			return nil, fmt.Errorf("lock %q: %w", name, err)
		}
	}
}

// pause waits, and reports whether ctx lives on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// takeTurn waits until no other caller of this client has to do with the lock, and returns
// how to leave it to the next one.
func (c *Client) takeTurn(ctx context.Context, name string, once bool) (leave func(), err error) {
	c.mu.Lock()
	n := c.names[name]
	if n == nil {
		n = &lockName{turn: make(chan struct{}, 1)}
		c.names[name] = n
	}
	n.users++
	c.mu.Unlock()
	forget := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if n.users--; n.users == 0 {
			delete(c.names, name)
		}
	}
	select {
	case n.turn <- struct{}{}:
		return func() { <-n.turn; forget() }, nil
	default:
	}
	if once {
		forget()
		return nil, ErrNotGranted
	}
	select {
	case n.turn <- struct{}{}:
		return func() { <-n.turn; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, fmt.Errorf("%w: %w", ErrNotGranted, ctx.Err())
	case <-c.ended:
		forget()
		c.mu.Lock()
		defer c.mu.Unlock()
		return nil, c.final
	}
}

// acquire asks for a lock once. Its lease is known to run when it returns.
func (c *Client) acquire(ctx context.Context, name string, o lockOptions, once bool) (*Lock, error) {
	wait := longWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = max(0, time.Until(deadline))
	}
	if once {
		wait = 0
	}
	ttl, waitMillis := o.lease.Milliseconds(), wait.Milliseconds()
	k := c.newCall(protocol.KindLockRequest, name, func(id string) protocol.Message {
		return &protocol.LockRequest{RequestID: id, Name: name, TTLMillis: &ttl, WaitMillis: &waitMillis}
	})
	l := &Lock{
		client: c, name: name, lease: o.lease, every: o.every,
		lost: make(chan struct{}), over: make(chan struct{}),
	}
	k.waits, k.wants = true, l
	// The lease is measured from before the request: the grant may have been long under way.
	sent := time.Now()
	if _, err := c.await(ctx, k); err != nil {
		if ctx.Err() != nil {
			c.withdraw(k)
		}
		if ctx.Err() != nil || errors.Is(err, ErrUnavailable) {
			err = fmt.Errorf("%w: %w", ErrNotGranted, err)
		}
		return nil, err
	}
	if !c.keep(l) {
		return nil, fmt.Errorf("%w: %w", ErrNotGranted, errConnection)
	}
	if time.Since(sent) > l.every {
		// It waited, so how much of the lease is left is not known.
		sent = time.Now()
		if held, err := l.renew(ctx); !held || err != nil {
			l.giveBack()
			return nil, fmt.Errorf("%w: lease is not confirmed", ErrNotGranted)
		}
	}
	l.deadline = sent.Add(l.margin())
	return l, nil
}

// withdraw tells the server of a request for a lock that nobody waits for any more. It would
// keep its place in the queue for as long as it said, and a session has only a few.
func (c *Client) withdraw(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && c.conn == k.conn {
		c.conn.postLocked(&protocol.LockRelease{RequestID: k.id, Name: k.name})
	}
}

// keep reports whether a lock that was granted can be held: not if its connection has ended,
// nor if the token is one that was lost before, which the server does not know yet.
func (c *Client) keep(l *Lock) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != l.conn {
		return false
	}
	if l.token <= l.conn.spent[l.name] {
		delete(l.conn.locks, l)
		c.returnLocked(l.name, l.token)
		return false
	}
	return true
}

// grantedLocked takes a grant. One that nobody waits for any more is given back, unless it is
// what another caller holds or is about to get. A lock belongs to the connection before the
// next message is read, which may be such a grant with the same token.
func (c *Client) grantedLocked(cn *conn, m *protocol.LockGranted) {
	if k := c.pendingLocked(m.RequestID, protocol.KindLockRequest); k != nil {
		if l := k.wants; l != nil {
			l.conn, l.token = cn, m.FencingToken
			cn.locks[l] = struct{}{}
		}
		c.settleLocked(k, m, nil)
		return
	}
	for l := range cn.locks {
		if l.name == m.Name && l.token == m.FencingToken {
			return
		}
	}
	if c.oldestLocked(cn, protocol.KindLockRequest.String(), m.Name) == nil {
		c.returnLocked(m.Name, m.FencingToken)
	}
}

// returnLocked gives a token back that nobody holds here. It has an id, because an answer
// without one is taken for the end of a request.
func (c *Client) returnLocked(name string, token uint64) {
	id, _ := c.newID()
	c.conn.postLocked(&protocol.LockRelease{RequestID: id, Name: name, FencingToken: token})
}

// releasedLocked takes the outcome of a release or a renewal, or the end of a request, which
// has no id.
func (c *Client) releasedLocked(m *protocol.LockReleased) {
	k := c.pendingLocked(m.RequestID, protocol.KindLockRequest, protocol.KindLockRelease)
	if m.RequestID == "" && !m.Success {
		k = c.oldestLocked(c.conn, protocol.KindLockRequest.String(), m.Name)
		if k != nil && k.renews {
			k = nil
		}
	}
	switch {
	case k == nil:
	case k.kind == protocol.KindLockRelease, k.renews:
		c.settleLocked(k, m, nil)
	default:
		c.settleLocked(k, nil, fmt.Errorf("%w: %s", ErrNotGranted, m.Reason))
	}
}
