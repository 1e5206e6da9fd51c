package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Live holds that live queries show only values that were written, those of each key in
// one order on all connections, and none again.
func Live(ops []Op) []string {
	written := make(map[string]Op)
	for _, op := range ops {
		if op.Kind == Put {
			written[op.Key+"="+op.Value] = op
		}
	}
	o := newOrders()
	for _, op := range ops {
		if op.Kind != Update || op.Value == "" {
			continue
		}
		put, known := written[op.Key+"="+op.Value]
		switch {
		case !known:
			o.problem("a query of client %d on %s shows %q for %s, which nobody wrote", op.Client, op.Node, op.Value, op.Key)
		case put.Outcome == Failed:
			o.problem("a query of client %d on %s shows %q for %s, whose write had failed", op.Client, op.Node, op.Value, op.Key)
		}
		o.saw(op)
	}
	o.cycles("value")
	return o.problems
}

// Topics holds that the messages of each topic come in one order on all connections, those
// of each publisher in its order, none twice, none that nobody published, and none to the
// connection that published it.
func Topics(ops []Op) []string {
	published := make(map[string]Op)
	for _, op := range ops {
		if op.Kind == Publish {
			published[op.Value] = op
		}
	}
	o := newOrders()
	type stream struct{ client, session, publisher int }
	latest := make(map[stream]Op)
	for _, op := range ops {
		if op.Kind != Deliver {
			continue
		}
		pub, known := published[op.Value]
		switch {
		case !known:
			o.problem("client %d on %s got %q, which nobody published", op.Client, op.Node, op.Value)
		case pub.Client == op.Client && pub.Session == op.Session:
			o.problem("client %d on %s got %q, which it had published", op.Client, op.Node, op.Value)
		}
		at := stream{op.Client, op.Session, pub.Client}
		// Order holds for what one connection published.
		if was := latest[at]; was.Session == pub.Session && pub.Call < was.Call {
			o.problem("client %d on %s got %q after %q of the same publisher", op.Client, op.Node, op.Value, was.Value)
		}
		latest[at] = pub
		o.saw(op)
	}
	o.cycles("message")
	return o.problems
}

// orders finds out whether streams that each show a part of some values can come from one
// order of all.
type orders struct {
	problems []string
	last     map[string]string          // by connection and key: what it saw last
	shown    map[string]map[string]bool // by connection and key: what it saw
	behind   map[string]map[string]bool // value -> values that directly follow it somewhere
}

func newOrders() *orders {
	return &orders{last: map[string]string{}, shown: map[string]map[string]bool{}, behind: map[string]map[string]bool{}}
}

func (o *orders) problem(format string, args ...any) {
	o.problems = append(o.problems, fmt.Sprintf(format, args...))
}

// saw notes that a connection was shown a value of a key.
func (o *orders) saw(op Op) {
	at := fmt.Sprint(op.Client, "/", op.Session, "/", op.Key)
	if o.shown[at] == nil {
		o.shown[at] = make(map[string]bool)
	}
	was, value := o.last[at], op.Key+"="+op.Value
	if was == value && op.Kind == Update {
		return
	}
	if o.shown[at][value] {
		o.problem("client %d on %s was shown %q of %s again", op.Client, op.Node, op.Value, op.Key)
		return
	}
	o.shown[at][value], o.last[at] = true, value
	if was == "" {
		return
	}
	if o.behind[was] == nil {
		o.behind[was] = make(map[string]bool)
	}
	o.behind[was][value] = true
}

// cycles finds values that come before and after one another.
func (o *orders) cycles(what string) {
	const entered, left = 1, 2
	mark := make(map[string]int)
	var path []string
	var walk func(v string) bool
	walk = func(v string) bool {
		switch mark[v] {
		case left:
			return false
		case entered:
			at := slices.Index(path, v)
			o.problem("no order has each %s before the next: %s", what, strings.Join(append(path[at:], v), ", "))
			return true
		}
		mark[v] = entered
		path = append(path, v)
		for _, next := range slices.Sorted(maps.Keys(o.behind[v])) {
			if walk(next) {
				return true
			}
		}
		path = path[:len(path)-1]
		mark[v] = left
		return false
	}
	for _, v := range slices.Sorted(maps.Keys(o.behind)) {
		if walk(v) {
			return
		}
	}
}
