package chaos

import (
	"context"
	"time"
)

// silenceTime is how long a node that runs may leave a request without verdict, ERROR and the
// end of the connection.
const silenceTime = 35 * time.Second

// giveUp leaves a connection on which an answer did not come in time. It stays open until the
// answer comes, or it is a problem that none does.
func (c *caller) giveUp(ctx context.Context) {
	if c.conn == nil || c.conn.unanswered == nil || ctx.Err() != nil {
		c.hangUp()
		return
	}
	cn := c.conn
	c.conn = nil
	cn.mute()
	d := c.load.round
	d.silent.Go(func() {
		if silent(cn.Gone(), cn.unanswered, d.ended, cn.host.PausedSince, cn.since, cn.allowed) {
			d.problem("%s: client %d got no verdict, ERROR or close from %s for %v", c.load.name, c.id, cn.node, cn.allowed)
		}
		c.leave(cn)
	})
}

// silent waits for an answer, and reports whether none came for as long as allowed. The time in
// which the node was paused does not count.
func silent(gone, answered, ended <-chan struct{}, paused func(since time.Time) bool, from time.Time, allowed time.Duration) bool {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-gone:
			return false
		case <-answered:
			return false
		case <-ended:
			return false
		case <-ticker.C:
		}
		switch {
		case paused(from):
			from = time.Now()
		case time.Since(from) >= allowed:
			return true
		}
	}
}
