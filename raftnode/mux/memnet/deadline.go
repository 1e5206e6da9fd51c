package memnet

import (
	"sync"
	"time"
)

// deadline is a moment that can be moved while others wait for it to pass.
type deadline struct {
	mu     sync.Mutex // protects all fields
	timer  *time.Timer
	gone   chan struct{} // closed when the deadline has passed
	armed  uint64        // counts calls of set, so that a late timer of an earlier one does nothing
	closed bool          // gone is closed
}

func newDeadline() deadline { return deadline{gone: make(chan struct{})} }

// set moves the deadline; the zero time means none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.armed++
	if d.closed {
		d.gone, d.closed = make(chan struct{}), false
	}
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		close(d.gone)
		d.closed = true
		return
	}
	armed := d.armed
	d.timer = time.AfterFunc(wait, func() { d.pass(armed) })
}

func (d *deadline) pass(armed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.armed == armed && !d.closed {
		close(d.gone)
		d.closed = true
	}
}

// passed returns a channel that is closed once the deadline in force passes. After
// a call of set ask again.
func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone
}

func (d *deadline) expired() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}
