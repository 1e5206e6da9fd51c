package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/protocol"
)

// Lock is a lock that is held, and renewed in the background. It is safe for concurrent use.
type Lock struct {
	client *Client
	conn   *conn
	name   string
	token  uint64
	lease  time.Duration
	// every is the pace of renewals.
	every time.Duration
	// lost is closed when the lock is lost, over when it is lost or being released.
	lost, over chan struct{}

	// The fields below are protected by Client.mu.

	// leave lets the next caller of this client have its turn; nil until the lock has begun.
	leave func()
	// timer runs out at deadline, when the lock is lost unless it was renewed.
	timer    *time.Timer
	deadline time.Time
	ended    bool
}

// Name is the lock's name.
func (l *Lock) Name() string { return l.name }

// Token is the fencing token: greater than that of every earlier holder.
func (l *Lock) Token() uint64 { return l.token }

// Fence guards writes by this lock; see Fenced. A holder that was paused for longer than its
// lease cannot know that the lock is gone: only the fence protects what it writes then.
func (l *Lock) Fence() Fence { return Fence{Lock: l.name, Token: l.token} }

// Lost is closed when the lock is not certain to be held any more: its lease was not confirmed
// for 7/8 of its time by this machine's monotonic clock, the server said so, or the connection or
// the client ended. Whoever works under the lock stops then. A lease that runs out leaves an
// eighth of its time. A server that ends the connection frees the lock at the same time, so
// another holder may be earlier than this: by as long as the client takes to hear of it, and if
// it hears nothing, as when the network was cut, by up to 7/8 of the lease. What must not happen
// twice in that time needs the fence. Release does not close Lost.
func (l *Lock) Lost() <-chan struct{} { return l.lost }

// Held reports whether the lock is held, by the clock of this moment.
func (l *Lock) Held() bool {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	return !l.ended && time.Now().Before(l.deadline)
}

// Release gives the lock back. ErrLockLost: it was not held any more. ErrUnknown: it is given
// back now or when its lease ends. After each of them the lock is not held.
func (l *Lock) Release(ctx context.Context) error {
	if !l.end() {
		return fmt.Errorf("release lock %q: %w", l.name, ErrLockLost)
	}
	defer l.leave()
	c := l.client
	k := c.newCall(protocol.KindLockRelease, l.name, func(id string) protocol.Message {
		return &protocol.LockRelease{RequestID: id, Name: l.name, FencingToken: l.token}
	})
	k.again, k.changes, k.waits = true, true, true
	answer, err := c.do(ctx, k)
	if err != nil {
		c.mu.Lock()
		l.conn.spent[l.name] = max(l.conn.spent[l.name], l.token)
		c.mu.Unlock()
		if !errors.Is(err, ErrUnknown) {
			// It still holds the lock, until its lease or the connection ends.
			err = fmt.Errorf("%w: %s", ErrUnknown, err.Error()) // of one class only
		}
		return fmt.Errorf("release lock %q: %w", l.name, err)
	}
	if m := answer.(*protocol.LockReleased); !m.Success {
		if k.doubt { // what ended it may have been an attempt that was not answered
			return fmt.Errorf("release lock %q: %w: %s", l.name, ErrUnknown, m.Reason)
		}
		return fmt.Errorf("release lock %q: %w: %s", l.name, ErrLockLost, m.Reason)
	}
	return nil
}

// margin is how much of the lease the holder counts on. The rest is for clocks that do not
// run alike.
func (l *Lock) margin() time.Duration { return l.lease / 8 * 7 }

// begin starts the renewals. leave is called when the lock is over.
func (l *Lock) begin(leave func()) {
	c := l.client
	c.mu.Lock()
	l.leave = leave
	gone := c.conn != l.conn
	if !gone {
		l.timer = time.AfterFunc(time.Until(l.deadline), l.lapse)
		c.background.Go(l.keepAlive)
	}
	c.mu.Unlock()
	if gone {
		l.lose()
	}
}

// keepAlive renews the lease until the lock is over.
func (l *Lock) keepAlive() {
	ctx, cancel := context.WithCancel(l.client.ctx)
	defer cancel()
	next := l.every
	for {
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-l.over:
			timer.Stop()
			return
		}
		sent := time.Now()
		held, err := l.renew(ctx)
		switch {
		case err != nil:
			next = min(l.every, l.lease/16) // not confirmed; the deadline stands
		case !held:
			l.lose()
			return
		default:
			l.extend(sent.Add(l.margin()))
			next = max(0, l.every-time.Since(sent))
		}
	}
}

// renew begins the lease anew, and reports whether the lock is held. After an error that is
// not known.
func (l *Lock) renew(ctx context.Context) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.lease/3)
	defer cancel()
	c, ttl := l.client, l.lease.Milliseconds()
	k := c.newCall(protocol.KindLockRequest, l.name, func(id string) protocol.Message {
		return &protocol.LockRequest{RequestID: id, Name: l.name, TTLMillis: &ttl, FencingToken: &l.token}
	})
	k.waits, k.renews = true, true
	answer, err := c.await(ctx, k)
	if err != nil {
		return false, err
	}
	_, held = answer.(*protocol.LockGranted)
	return held, nil
}

// extend moves the deadline, unless the lock is over.
func (l *Lock) extend(deadline time.Time) {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	if !l.ended && l.timer.Stop() {
		l.deadline = deadline
		l.timer.Reset(time.Until(deadline))
	}
}

// end makes the lock over; false if it is already, or has not begun.
func (l *Lock) end() bool {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.ended || l.leave == nil {
		return false
	}
	l.ended = true
	if l.timer != nil {
		l.timer.Stop()
	}
	delete(l.conn.locks, l)
	close(l.over)
	return true
}

// lose tells the holder that the lock is lost.
func (l *Lock) lose() {
	if !l.end() {
		return
	}
	close(l.lost)
	l.leave()
}

// lapse loses the lock because its lease was not confirmed in time.
func (l *Lock) lapse() {
	l.giveBack()
	l.lose()
}

// giveBack frees on the server what nobody holds here, and keeps the token from being taken
// for a new grant.
func (l *Lock) giveBack() {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(l.conn.locks, l)
	l.conn.spent[l.name] = max(l.conn.spent[l.name], l.token)
	if c.conn == l.conn {
		c.returnLocked(l.name, l.token)
	}
}
