package client

import "time"

// Waiting is the number of requests that are not sent.
func (c *Client) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.writes) + len(c.requests)
}

// RenewEvery sets the pace of renewals apart from the lease, so that tests need not wait for
// the one nor be quick because of the other.
func RenewEvery(d time.Duration) LockOption { return func(o *lockOptions) { o.every = d } }

// Deadline is when the lock is lost unless it is renewed.
func (l *Lock) Deadline() time.Time {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	return l.deadline
}
