package memnet

import "time"

// Cut says what happens to the traffic of a cut link.
type Cut uint8

// The ways to cut a link.
const (
	// Blackhole swallows traffic as a dropped cable does: bytes already written stall
	// until the link heals, dials hang until their context ends.
	Blackhole Cut = 1
	// Reset breaks connections over the link at once and refuses new ones.
	Reset Cut = 2
)

// Link describes one direction of traffic between two hosts. The zero Link is
// perfect: no delay, no limit, no resets.
type Link struct {
	// Latency is the time a byte takes to arrive; Jitter is added to it, evenly
	// distributed from zero to its value. Bytes of one connection keep their order.
	Latency, Jitter time.Duration
	// BytesPerSecond limits the sum of all connections over the link. Zero: no limit.
	BytesPerSecond int64
	// ResetRate is the probability, per Write, that the connection is reset instead.
	ResetRate float64
}

// route names a direction of traffic.
type route struct{ from, to string }

// link is the state of a direction: its settings, and the cut if there is one.
type link struct {
	settings Link
	cut      Cut
	cutAt    time.Time     // when the cut began
	healed   chan struct{} // closed by the heal that ends the cut
	free     time.Time     // when the line has sent all bytes written so far
}

// heal lets traffic through again; connections must be woken to see it.
func (l *link) heal() {
	if l.cut != 0 {
		l.cut = 0
		close(l.healed)
	}
}

// arrivalLocked returns when size bytes written now reach the other end.
func (n *Network) arrivalLocked(l *link, size int) time.Time {
	at := time.Now()
	if rate := l.settings.BytesPerSecond; rate > 0 {
		if l.free.After(at) {
			at = l.free
		}
		at = at.Add(time.Duration(float64(size) / float64(rate) * float64(time.Second)))
		l.free = at
	}
	return at.Add(n.delayLocked(l))
}

func (n *Network) delayLocked(l *link) time.Duration {
	d := l.settings.Latency
	if j := l.settings.Jitter; j > 0 {
		d += time.Duration(n.rng.Int64N(int64(j)))
	}
	return d
}

// arrived reports whether something that is due at the given time has come through.
func (l *link) arrived(at, now time.Time) bool {
	return !at.IsZero() && !at.After(now) && !l.stalls(at)
}

// stalls reports whether something due at the given time waits for the heal: what
// is due at the very moment of the cut does.
func (l *link) stalls(at time.Time) bool { return l.cut != 0 && !at.Before(l.cutAt) }
