// Package lock is the state of the locks of one group: who holds each and with which
// token, who waits in which order, and which nodes vouch for the connections. It knows
// no clock: leases and silent nodes end by commands, which the leader proposes by its
// own clock and which name exactly what they end. Nothing here is safe for concurrent
// use; the state machine has the lock.
//
// A token is greater than every earlier one of the group, so a resource that remembers
// the greatest token it has seen refuses holders of the past (M. Kleppmann, "How to do
// distributed locking", 2016; C. Gray, D. Cheriton, "Leases", SOSP 1989, for the leases).
package lock

import (
	"maps"
	"slices"
)

// Bounds of what clients can pile up.
const (
	// MaxWaiters is how many requests wait for one lock at most, and MaxPlaces how many
	// of them come from one session.
	MaxWaiters = 1024
	MaxPlaces  = 16
	// MaxLocks is how many locks of a group one session holds or waits for at most.
	MaxLocks = 1024
)

// Session names a client connection: the run of the node that serves it, and the
// connection's number there.
type Session struct {
	Gateway string
	Number  uint64
}

// Request is one wish to hold a lock. The zero value is no request.
type Request struct {
	Session
	// ID tells the requests of a gateway apart; it is never used again.
	ID uint64
	// TTLMillis is how long the holder keeps the lock without renewal, in
	// milliseconds; zero is as long as its session lives.
	TTLMillis int64
}

// Lock is a lock that somebody holds. A free lock has no state.
type Lock struct {
	Name string
	// Token is that of the present holder, and Lease counts its renewals.
	Token, Lease uint64
	Holder       Request
	// Waiters come next, in this order. None is of the holder's session.
	Waiters []Request
}

// State is what a request has come to.
type State uint8

// The states. Zero is invalid.
const (
	// Granted: the session holds the lock.
	Granted State = 1
	// Waiting: others are before it.
	Waiting State = 2
	// Gone: it neither holds nor waits, and never will.
	Gone State = 3
	// Full: too many wait already, or the session has too many locks; it does not wait.
	Full State = 4
)

// Outcome is the answer to a request: its state, and the token if it is granted.
type Outcome struct {
	State State
	Token uint64
}

// Table is the locks of a group. Use NewTable.
type Table struct {
	locks map[string]*Lock
	// fence is the greatest token so far, given or left out.
	fence    uint64
	gateways map[string]*gateway
	changes  Changes
}

// Changes names what changed since the last Drain; a name may occur more than once.
type Changes struct{ Locks, Gateways []string }

// Drain returns what changed since the last call.
func (t *Table) Drain() Changes {
	c := t.changes
	t.changes = Changes{}
	return c
}

func (t *Table) touch(name string) { t.changes.Locks = append(t.changes.Locks, name) }

func (t *Table) touchGateway(name string) { t.changes.Gateways = append(t.changes.Gateways, name) }

// gateway is one run of a node that has sessions with locks here.
type gateway struct {
	// beat is the log index at which it was last heard of.
	beat uint64
	// sessions lists the names of the locks that each session holds or waits for.
	sessions map[uint64]map[string]struct{}
}

// NewTable returns a table without locks.
func NewTable() *Table { return &Table{locks: map[string]*Lock{}, gateways: map[string]*gateway{}} }

// Fence is the greatest token that was ever given or left out.
func (t *Table) Fence() uint64 { return t.fence }

// MaxToken is the greatest token there can be: clients count in floating point.
const MaxToken = 1<<53 - 1

// Raise leaves out the next tokens, by that many, unless they would pass MaxToken.
func (t *Table) Raise(by uint64) bool {
	if t.fence > MaxToken || by > MaxToken-t.fence {
		return false
	}
	t.fence += by
	return true
}

// Get returns a lock, nil if nobody holds it. It must not be modified, and is good
// until the next change.
func (t *Table) Get(name string) *Lock { return t.locks[name] }

// Len is the number of locks that are held.
func (t *Table) Len() int { return len(t.locks) }

// Names lists the locks that are held, in order.
func (t *Table) Names() []string { return slices.Sorted(maps.Keys(t.locks)) }

// Gateways returns when each gateway that has sessions here was last heard of.
func (t *Table) Gateways() map[string]uint64 {
	beats := make(map[string]uint64, len(t.gateways))
	for name, g := range t.gateways {
		beats[name] = g.beat
	}
	return beats
}

// Beat is the log index at which a gateway was last heard of, zero if none of its
// sessions has to do with a lock.
func (t *Table) Beat(name string) uint64 {
	if g := t.gateways[name]; g != nil {
		return g.beat
	}
	return 0
}

// Acquire gives the lock to a request if it is free or its session's already, and
// otherwise lets it wait. index is that of the log entry, at which its gateway lives.
func (t *Table) Acquire(name string, req Request, index uint64) Outcome {
	l := t.locks[name]
	switch {
	case t.crowded(req.Session, l, name):
		return Outcome{State: Full}
	case l == nil:
		l = &Lock{Name: name}
		t.locks[name] = l
		t.grant(l, req)
	case l.Holder.Session == req.Session:
		return Outcome{State: Granted, Token: l.Token}
	default:
		l.Waiters = append(l.Waiters, req)
	}
	t.touch(name)
	t.enter(req.Session, name, index)
	return t.Status(name, req)
}

// crowded reports whether a session may not have one more lock, or one more place in the
// queue of l.
func (t *Table) crowded(s Session, l *Lock, name string) bool {
	if l != nil && l.Holder.Session == s {
		return false
	}
	if g := t.gateways[s.Gateway]; g != nil && len(g.sessions[s.Number]) >= MaxLocks {
		if _, has := g.sessions[s.Number][name]; !has {
			return true
		}
	}
	if l == nil {
		return false
	}
	places := 0
	for _, w := range l.Waiters {
		if w.Session == s {
			places++
		}
	}
	return places >= MaxPlaces || len(l.Waiters) >= MaxWaiters
}

// Status is what a request has come to that was made before.
func (t *Table) Status(name string, req Request) Outcome {
	l := t.locks[name]
	switch {
	case l == nil:
		return Outcome{State: Gone}
	case l.Holder.Session == req.Session:
		return Outcome{State: Granted, Token: l.Token}
	case slices.ContainsFunc(l.Waiters, req.same):
		return Outcome{State: Waiting}
	default:
		return Outcome{State: Gone}
	}
}

func (r Request) same(other Request) bool { return r.Session == other.Session && r.ID == other.ID }

// Release ends the hold of a token and reports whether the token held the lock.
func (t *Table) Release(name string, token uint64) bool {
	l := t.locks[name]
	if l == nil || l.Token != token {
		return false
	}
	t.next(l)
	return true
}

// Expire ends the hold of a token if it was not renewed since lease, and reports
// whether it did.
func (t *Table) Expire(name string, token, lease uint64) bool {
	l := t.locks[name]
	if l == nil || l.Token != token || l.Lease != lease {
		return false
	}
	t.next(l)
	return true
}

// Renew begins the lease of a token anew, with another duration, and reports whether
// the token held the lock.
func (t *Table) Renew(name string, token uint64, ttlMillis int64) bool {
	l := t.locks[name]
	if l == nil || l.Token != token {
		return false
	}
	l.Lease++
	l.Holder.TTLMillis = ttlMillis
	t.touch(name)
	return true
}

// Cancel ends the wait of a request. One that is granted already keeps the lock.
func (t *Table) Cancel(name string, req Request) Outcome {
	if l := t.locks[name]; l != nil {
		waiters := len(l.Waiters)
		l.Waiters = slices.DeleteFunc(l.Waiters, req.same)
		if len(l.Waiters) < waiters {
			t.touch(name)
			t.leave(l, req.Session)
		}
	}
	return t.Status(name, req)
}

// End ends all that a session holds and waits for, and reports whether there was
// anything.
func (t *Table) End(s Session) bool {
	g := t.gateways[s.Gateway]
	if g == nil || g.sessions[s.Number] == nil {
		return false
	}
	names := sorted(g.sessions[s.Number])
	t.evict(names, func(other Session) bool { return other == s })
	return true
}

// EndGateway does what End does, for all sessions of a gateway that was not heard of
// since beat.
func (t *Table) EndGateway(name string, beat uint64) bool {
	g := t.gateways[name]
	if g == nil || g.beat != beat {
		return false
	}
	all := map[string]struct{}{}
	for _, names := range g.sessions {
		maps.Copy(all, names)
	}
	names := sorted(all)
	t.evict(names, func(s Session) bool { return s.Gateway == name })
	return true
}

// Hear notes that a gateway lives, and reports whether it has to do with a lock.
func (t *Table) Hear(name string, index uint64) bool {
	g := t.gateways[name]
	if g != nil {
		g.beat = index
		t.touchGateway(name)
	}
	return g != nil
}

// sorted lists names in order: tokens are given in it, on all replicas.
func sorted(names map[string]struct{}) []string {
	if inMapOrder {
		return slices.Collect(maps.Keys(names))
	}
	return slices.Sorted(maps.Keys(names))
}

// evict takes the sessions for which gone holds out of the locks: first from the
// queues, so that no lock goes to one of them.
func (t *Table) evict(names []string, gone func(Session) bool) {
	for _, name := range names {
		t.touch(name)
		l := t.locks[name]
		for _, w := range l.Waiters {
			if gone(w.Session) {
				t.forget(w.Session, name)
			}
		}
		l.Waiters = slices.DeleteFunc(l.Waiters, func(w Request) bool { return gone(w.Session) })
		if gone(l.Holder.Session) {
			t.next(l)
		}
	}
}

// grant makes a request the holder; its session has no need to wait any more.
func (t *Table) grant(l *Lock, req Request) {
	t.fence++
	l.Token, l.Lease, l.Holder = t.fence, 0, req
	l.Waiters = slices.DeleteFunc(l.Waiters, func(w Request) bool { return w.Session == req.Session })
}

// next takes the lock from its holder and gives it to the first that waits.
func (t *Table) next(l *Lock) {
	t.touch(l.Name)
	t.forget(l.Holder.Session, l.Name)
	if forgetsWaiters {
		for _, w := range l.Waiters {
			t.forget(w.Session, l.Name)
		}
		l.Waiters = nil
	}
	if len(l.Waiters) == 0 {
		delete(t.locks, l.Name)
		return
	}
	t.grant(l, l.Waiters[0])
}

// enter notes that a session holds or waits for a lock.
func (t *Table) enter(s Session, name string, index uint64) {
	g := t.gateways[s.Gateway]
	if g == nil {
		g = &gateway{sessions: map[uint64]map[string]struct{}{}}
		t.gateways[s.Gateway] = g
	}
	if g.beat != index {
		g.beat = index
		t.touchGateway(s.Gateway)
	}
	if g.sessions[s.Number] == nil {
		g.sessions[s.Number] = map[string]struct{}{}
	}
	g.sessions[s.Number][name] = struct{}{}
}

// leave forgets a session at a lock unless another of its requests still waits.
func (t *Table) leave(l *Lock, s Session) {
	if !slices.ContainsFunc(l.Waiters, func(w Request) bool { return w.Session == s }) {
		t.forget(s, l.Name)
	}
}

// forget undoes enter.
func (t *Table) forget(s Session, name string) {
	g := t.gateways[s.Gateway]
	if g == nil {
		return
	}
	delete(g.sessions[s.Number], name)
	if len(g.sessions[s.Number]) == 0 {
		delete(g.sessions, s.Number)
	}
	if len(g.sessions) == 0 {
		delete(t.gateways, s.Gateway)
		t.touchGateway(s.Gateway)
	}
}
