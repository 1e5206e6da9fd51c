package check

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// Locks holds, for each lock, that no two clients hold it at a time, that tokens ascend,
// that nobody loses it early, and that what is written in its protection is linearizable
// and never goes back to an earlier holder. A lock has a resource per group of keys: each group
// knows by itself which tokens have written.
//
// A client holds a lock for certain from the grant until it last asked for anything that was
// answered on the connection of the grant, but not beyond its lease, counted from when it
// asked for it, nor beyond the moment at which it asked for the release.
func Locks(ops []Op) []string {
	byName := make(map[string][]Op)
	for _, op := range ops {
		if op.Kind != Read {
			byName[op.Key] = append(byName[op.Key], op)
		}
	}
	for _, op := range ops {
		if op.Kind == Read && op.Outcome == OK {
			for name := range byName {
				byName[name] = append(byName[name], op)
			}
		}
	}
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		l := &lockCheck{name: name, ops: byName[name]}
		l.collect()
		l.exclusion()
		l.tokens()
		problems = append(problems, l.problems...)
		for _, key := range l.resources() {
			problems = append(problems, linearizable("resource "+key+" of lock "+name, resourceModel(), l.resource(key))...)
		}
	}
	return problems
}

// tenure is a time in which a client holds the lock for certain.
type tenure struct {
	Op       // of the grant
	from, to int64
}

type lockCheck struct {
	name     string
	ops      []Op
	grants   []Op
	tenures  []tenure
	problems []string
}

func (l *lockCheck) problem(format string, args ...any) {
	l.problems = append(l.problems, "lock "+l.name+": "+fmt.Sprintf(format, args...))
}

// collect pairs grants with what came of them.
func (l *lockCheck) collect() {
	for _, op := range l.ops {
		if op.Kind == Acquire && op.Outcome == OK {
			l.grants = append(l.grants, op)
		}
	}
	for _, g := range l.grants {
		if sure := l.certain(g); sure > g.Return {
			l.tenures = append(l.tenures, tenure{g, g.Return, sure})
		}
	}
}

// certain returns until when the client of a grant held the lock for certain, and notes if it
// was told within its lease that it does not hold it. What is confirmed for the token of the
// grant says that the lock was never lost before.
func (l *lockCheck) certain(g Op) (sure int64) {
	released, until := int64(math.MaxInt64), g.Until
	var session []Op
	for _, op := range l.ops {
		if op.Client != g.Client || op.Session != g.Session {
			continue
		}
		session = append(session, op)
		if op.Kind == Release && op.Token == g.Token {
			released = min(released, op.Call)
		}
	}
	slices.SortStableFunc(session, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	sure = g.Return
	for _, op := range session {
		switch {
		case op.isAbout(g):
			until = op.lease(until)
			if op.Outcome == Failed && op.Refused && op.Return < until {
				l.problem("client %d lost token %d %d ms before its lease ended", op.Client, op.Token, (until-op.Return)/1e6)
			}
		case op.Node == AnyNode || op.Kind != Fenced && op.Kind != Read:
			continue
		}
		if op.Outcome == OK {
			sure = max(sure, min(op.Call, until, released))
		}
	}
	return sure
}

// lease is until when the lease of a token lasts at least after op, which is about that token:
// until lasted it before. A renewal replaces the lease, and may end it earlier.
func (op *Op) lease(until int64) int64 {
	switch {
	case op.Kind != Renew:
		return max(until, op.Until)
	case op.Outcome == OK:
		return op.Until
	case op.Outcome == Unknown:
		return min(until, op.Until)
	default:
		return until
	}
}

// isAbout reports whether op tells how it stands with the lock that was granted.
func (op *Op) isAbout(grant Op) bool {
	return op.Token == grant.Token && (op.Kind == Renew || op.Kind == Release || op.Kind == Held || op.Kind == Lost)
}

func (l *lockCheck) exclusion() {
	slices.SortFunc(l.tenures, func(a, b tenure) int { return cmp.Compare(a.from, b.from) })
	for i, b := range l.tenures {
		for _, a := range l.tenures[:i] {
			if b.from < a.to {
				l.problem("client %d got token %d while client %d held token %d", b.Client, b.Token, a.Client, a.Token)
			}
			if b.Token <= a.Token {
				l.problem("client %d got token %d after client %d held token %d", b.Client, b.Token, a.Client, a.Token)
			}
		}
	}
}

func (l *lockCheck) tokens() {
	holder := make(map[uint64]Op)
	for _, g := range l.grants {
		if other, twice := holder[g.Token]; twice {
			l.problem("clients %d and %d both got token %d", other.Client, g.Client, g.Token)
		}
		holder[g.Token] = g
	}
	slices.SortFunc(l.grants, func(a, b Op) int { return cmp.Compare(a.Token, b.Token) })
	latest := Op{}
	for i, g := range l.grants {
		if i > 0 && g.Return < latest.Call {
			l.problem("client %d got token %d before client %d asked and got token %d", g.Client, g.Token, latest.Client, latest.Token)
		}
		if g.Call > latest.Call {
			latest = g
		}
	}
}

// resources are the keys that are written in protection of the lock.
func (l *lockCheck) resources() (keys []string) {
	for _, op := range l.ops {
		if op.Kind == Fenced {
			keys = append(keys, op.resource())
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func (op *Op) resource() string { return cmp.Or(op.Resource, op.Key) }

// resource are the fenced writes and the reads of one key that the lock protects. A write that
// failed for other reasons than its fence says nothing.
func (l *lockCheck) resource(key string) []porcupine.Operation {
	var history []porcupine.Operation
	for _, op := range l.ops {
		if op.Kind == Read || op.Kind == Fenced && op.resource() == key && (op.Outcome != Failed || op.Refused) {
			history = append(history, porcupine.Operation{ClientId: op.Client, Input: step{op, op.Rows[key]}, Call: op.Call, Return: op.end()})
		}
	}
	return history
}

// guarded is the state of a resource.
type guarded struct {
	token uint64
	value string
}

func resourceModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return guarded{} },
		Step: func(state, input, _ any) (bool, any) {
			now, s := state.(guarded), input.(step)
			switch {
			case s.Kind == Read:
				return s.seen == now.value, now
			case s.Outcome == Failed: // refused
				return s.Token < now.token, now
			case s.Token >= now.token:
				return true, guarded{s.Token, s.Value}
			default: // an open one that came too late
				return s.Outcome == Unknown, now
			}
		},
	}
}
