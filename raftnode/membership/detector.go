package membership

import (
	"sync"
	"time"

	"github.com/quorate/quorate/fsm/system"
)

// detector remembers when each peer was last heard of. It is safe for concurrent
// use.
type detector struct {
	// gap is the longest time between two looks of a process that runs normally.
	gap time.Duration

	// mu protects the rest.
	mu     sync.Mutex
	looked time.Time
	heard  map[string]time.Time
}

func newDetector(gap time.Duration, now time.Time) *detector {
	return &detector{gap: gap, looked: now, heard: map[string]time.Time{}}
}

// contact records that peer id was alive at the time at.
func (d *detector) contact(id string, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at.After(d.heard[id]) {
		d.heard[id] = at
	}
}

// look must be called regularly. When it was not, this process stood still and has
// heard nobody through no fault of theirs: all silences start over.
func (d *detector) look(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.looked) > d.gap {
		for id := range d.heard {
			d.heard[id] = now
		}
	}
	d.looked = now
}

// silence is how long peer id has not been heard of. A peer never heard of is
// counted from the first question about it.
func (d *detector) silence(id string, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, known := d.heard[id]
	if !known {
		d.heard[id] = now
		return 0
	}
	return max(now.Sub(at), 0)
}

// forget drops what is known about peer id.
func (d *detector) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.heard, id)
}

// statusAfter is the status that a member should have. settled says that it is in
// place: every group that should run on it has it in its configuration.
func (t Timing) statusAfter(was system.Status, silence time.Duration, settled bool) system.Status {
	switch was {
	case system.StatusLeaving, system.StatusRemoved:
		return was
	default:
	}
	switch {
	case silence >= t.FailedAfter:
		return system.StatusFailed
	case was == system.StatusFailed && silence >= t.SuspectAfter:
		return was
	case was != system.StatusJoining && silence >= t.SuspectAfter:
		return system.StatusSuspect
	case (was == system.StatusJoining || was == system.StatusFailed) && !settled:
		return system.StatusJoining
	default:
		return system.StatusActive
	}
}
