package memnet

import "time"

// pipe is one direction of a connection. Its fields are protected by Network.mu.
type pipe struct {
	link     *link
	segments []segment
	size     int       // bytes in segments
	last     time.Time // arrival of the newest segment
	eofAt    time.Time // arrival of the end of the stream, zero before it was sent
	resetAt  time.Time // arrival of a reset, zero before it was sent
	goneAt   time.Time // when the reader closed its end, zero before
	changed  chan struct{}
}

// segment is the rest of one Write, and when it arrives.
type segment struct {
	data []byte
	at   time.Time
}

// takeLocked copies from the first segment.
func (p *pipe) takeLocked(b []byte) int {
	s := &p.segments[0]
	n := copy(b, s.data)
	s.data = s.data[n:]
	p.size -= n
	if len(s.data) == 0 {
		p.segments[0] = segment{}
		p.segments = p.segments[1:]
	}
	return n
}

// nextLocked returns how long until the next thing under way arrives, 0 if nothing
// is under way or the link is cut.
func (p *pipe) nextLocked(now time.Time) time.Duration {
	at := p.eofAt
	if len(p.segments) > 0 {
		at = p.segments[0].at
	}
	if at.IsZero() || p.link.stalls(at) {
		return 0
	}
	return max(at.Sub(now), 0)
}

func (p *pipe) wakeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// await waits for a change, at most for the given time unless that is 0. It reports
// false when the deadline passes first.
func await(changed <-chan struct{}, wait time.Duration, passed <-chan struct{}) bool {
	var due <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-changed:
	case <-due:
	case <-passed:
		return false
	}
	return true
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
