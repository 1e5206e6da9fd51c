package live

import (
	"bytes"

	"github.com/quorate/quorate/fsm/query"
)

// Interest says which changes of a map a subscription is for. The zero value is for all
// but its own.
type Interest struct {
	// Rows narrows it down to records that meet the condition, or met it before. Changes
	// of observed-remove maps are delivered all the same.
	Rows query.Interest
	// Own: changes by the subscription's own origin are delivered too, marked as such.
	Own bool
}

// audience is the subscriptions of one map.
type audience struct {
	// all get every change; byValue those of the records with a value, by attribute and by
	// value.
	all     map[*Subscription]struct{}
	byValue map[string]*valueIndex
	size    int
}

// valueIndex is the subscriptions for values of one attribute, by value.
type valueIndex struct {
	attribute query.Attribute
	values    map[string]map[*Subscription]struct{}
}

func newAudience() *audience {
	return &audience{all: map[*Subscription]struct{}{}, byValue: map[string]*valueIndex{}}
}

func (a *audience) add(s *Subscription) {
	a.size++
	rows := s.want.Rows
	if !rows.Narrow() {
		a.all[s] = struct{}{}
		return
	}
	index := a.byValue[rows.Attribute]
	if index == nil {
		index = &valueIndex{attribute: query.ParseAttribute(rows.Attribute), values: map[string]map[*Subscription]struct{}{}}
		a.byValue[rows.Attribute] = index
	}
	for _, value := range rows.Values {
		if index.values[value] == nil {
			index.values[value] = map[*Subscription]struct{}{}
		}
		index.values[value][s] = struct{}{}
	}
}

// has reports whether s was added and not removed.
func (a *audience) has(s *Subscription) bool {
	rows := s.want.Rows
	if !rows.Narrow() {
		_, ok := a.all[s]
		return ok
	}
	index := a.byValue[rows.Attribute]
	if index == nil {
		return false
	}
	_, ok := index.values[rows.Values[0]][s]
	return ok
}

func (a *audience) remove(s *Subscription) {
	a.size--
	rows := s.want.Rows
	if !rows.Narrow() {
		delete(a.all, s)
		return
	}
	values := a.byValue[rows.Attribute].values
	for _, value := range rows.Values {
		if delete(values[value], s); len(values[value]) == 0 {
			delete(values, value)
		}
	}
	if len(values) == 0 {
		delete(a.byValue, rows.Attribute)
	}
}

// each calls fn once with every subscription, in no order.
func (a *audience) each(fn func(*Subscription)) {
	for s := range a.all {
		fn(s)
	}
	for _, index := range a.byValue {
		for value, set := range index.values {
			for s := range set {
				if s.want.Rows.Values[0] == value {
					fn(s)
				}
			}
		}
	}
}

// concerned appends the subscriptions that the change of a record may concern, each once:
// those for what it is now, and those for what it was before.
func (a *audience) concerned(subs []*Subscription, e *Event) []*Subscription {
	for s := range a.all {
		subs = append(subs, s)
	}
	var roomNow, roomBefore [64]byte
	for _, index := range a.byValue {
		now, isNow := index.attribute.ValueName(roomNow[:0], e.Key, e.Record.Value)
		var nowSet map[*Subscription]struct{}
		if isNow {
			nowSet = index.values[string(now)]
			for s := range nowSet {
				subs = append(subs, s)
			}
		}
		if !e.Existed {
			continue
		}
		before, was := index.attribute.ValueName(roomBefore[:0], e.Key, e.Old)
		if !was || isNow && bytes.Equal(now, before) {
			continue
		}
		for s := range index.values[string(before)] {
			if _, twice := nowSet[s]; !twice {
				subs = append(subs, s)
			}
		}
	}
	return subs
}
