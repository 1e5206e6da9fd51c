// Package hlc is the hybrid logical clock that stamps what a server writes
// (Kulkarni et al., "Logical Physical Clocks", 2014): wall-clock milliseconds that
// never go back, and a counter for what happens within one of them. The physical
// clock is injected.
package hlc

import (
	"sync"

	"github.com/quorate/quorate/protocol"
)

// MaxDriftMillis is how far a timestamp may lie ahead of the physical clock and
// still be believed, in milliseconds. Exactly this far is believed.
const MaxDriftMillis = 60_000

// Clock issues strictly increasing timestamps. It is safe for concurrent use.
type Clock struct {
	nodeID   string
	physical func() int64
	maxDrift int64

	mu sync.Mutex // protects millis and counter, the last stamp issued or seen
	// Both stay within 0 and protocol.MaxSafeInteger.
	millis, counter int64
}

// New makes a clock that stamps with nodeID, which must not contain ':', and reads
// the time in milliseconds since 1970 from physical. The physical clock may stand
// still or step back.
func New(nodeID string, physical func() int64) *Clock {
	return &Clock{nodeID: nodeID, physical: physical, maxDrift: MaxDriftMillis}
}

// Now issues the next timestamp.
func (c *Clock) Now() protocol.Timestamp { return c.Reserve(1) }

// Reserve issues n timestamps at once, of the same millisecond and consecutive
// counters, and returns the first. A number below 1 counts as 1.
func (c *Clock) Reserve(n int) protocol.Timestamp {
	more := max(int64(n), 1) - 1
	wall := c.physical()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case wall > c.millis:
		c.millis, c.counter = wall, 0
	case c.counter >= protocol.MaxSafeInteger-more:
		c.millis, c.counter = c.millis+1, 0
	default:
		c.counter++
	}
	first := c.lastLocked()
	c.counter += more
	return first
}

// Update makes every later timestamp greater than ts, unless ts lies further ahead
// of the physical clock than MaxDriftMillis: such a ts is not believed and changes
// nothing.
func (c *Clock) Update(ts protocol.Timestamp) {
	wall := c.physical()
	if ts.Millis-wall > c.maxDrift {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.millis
	c.millis = max(last, wall, ts.Millis)
	switch c.millis {
	case last:
		if ts.Millis == last {
			c.counter = max(c.counter, ts.Counter)
		}
		c.countLocked(c.counter)
	case ts.Millis:
		c.countLocked(ts.Counter)
	default:
		c.counter = 0
	}
}

// countLocked moves the counter past n, to the next millisecond if it is used up.
func (c *Clock) countLocked(n int64) {
	if n >= protocol.MaxSafeInteger {
		c.millis, c.counter = c.millis+1, 0
		return
	}
	c.counter = n + 1
}

// Advance makes every later timestamp greater than (millis, counter), which the
// caller trusts however far ahead it is. It never moves the clock back.
func (c *Clock) Advance(millis, counter int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if millis > c.millis || millis == c.millis && counter > c.counter {
		c.millis, c.counter = millis, counter
	}
}

// Last is the greatest timestamp issued or seen so far, without issuing one.
func (c *Clock) Last() protocol.Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastLocked()
}

func (c *Clock) lastLocked() protocol.Timestamp {
	return protocol.Timestamp{Millis: c.millis, Counter: c.counter, NodeID: c.nodeID}
}
