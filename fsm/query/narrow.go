package query

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// Narrowing is a condition that every row of a query meets: the rank of the attribute lies
// in one of the spans, or nothing is known of it (SpanOpaque). What it admits need not be a
// row.
type Narrowing struct {
	Attribute string
	// Spans are disjoint and ascend. None: there is no row.
	Spans []Span
	// Points: the spans are those of single values.
	Points bool
}

// Narrowings lists the conditions on ranks, at most one for each attribute. It takes time in
// proportion to the query.
func (q *Query) Narrowings() []Narrowing {
	var list []Narrowing
	var walk func(condition node)
	walk = func(condition node) {
		found, ok := Narrowing{}, false
		switch n := condition.(type) {
		case all:
			for _, child := range n {
				walk(child)
			}
		case *leaf:
			found, ok = n.narrowing()
		case *literal:
			found, ok = n.narrowing()
		}
		if ok {
			list = conjoin(list, found)
		}
	}
	walk(q.filter)
	return list
}

// conjoin adds a condition to those that must hold too.
func conjoin(list []Narrowing, n Narrowing) []Narrowing {
	i := slices.IndexFunc(list, func(o Narrowing) bool { return o.Attribute == n.Attribute })
	if i < 0 {
		return append(list, n)
	}
	list[i].Spans, list[i].Points = intersect(list[i].Spans, n.Spans), list[i].Points || n.Points
	return list
}

// intersect is what lies in both lists of spans. A point lies in a span of the other list
// as a whole, or not at all.
func intersect(a, b []Span) (both []Span) {
	for len(a) > 0 && len(b) > 0 {
		if common := a[0].And(b[0]); !common.Empty() {
			both = append(both, common)
		}
		if a[0].To < b[0].To {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return both
}

// plain reports whether a name means the same as a path and as the name of a field.
func plain(name string) bool { return !strings.Contains(name, ".") }

func (n *literal) narrowing() (Narrowing, bool) {
	if !plain(n.name) || n.name == keyAttribute || n.name == valueAttribute || protocol.IsNil(n.want) {
		return Narrowing{}, false // a pseudo attribute is a field like others here
	}
	span, ok := point(n.want)
	return Narrowing{Attribute: n.name, Spans: []Span{span}, Points: true}, ok
}

func (n *leaf) narrowing() (Narrowing, bool) {
	found := Narrowing{Attribute: strings.Join(n.path, ".")}
	if n.op == opIsNull && !n.identity {
		found.Spans = []Span{SpanMissing}
		return found, true
	}
	if n.ref != nil || n.want == nil {
		return found, false
	}
	if values, ok := n.wanted(); ok {
		found.Spans, ok = points(values)
		found.Points = true
		return found, ok
	}
	span, ok := n.span()
	if !span.Empty() {
		found.Spans = []Span{span}
	}
	return found, ok
}

// points are the spans of values; false if one of them has none. Nil is equal to nothing.
func points(values []msgp.Raw) (list []Span, ok bool) {
	for _, value := range values {
		if protocol.IsNil(value) {
			continue
		}
		span, ok := point(value)
		if !ok {
			return nil, false
		}
		list = append(list, span)
	}
	slices.SortFunc(list, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	return slices.Compact(list), true
}

// span is where the values of a range lie, ends included.
func (n *leaf) span() (Span, bool) {
	switch n.op {
	case opGt, opGte, opLt, opLte:
		end, ok := point(n.want)
		if !ok || n.want == nil || end.From[0] == kindBool {
			return Span{}, false
		}
		whole := spanOf([]byte{end.From[0]})
		if n.op == opGt || n.op == opGte {
			return Span{end.From, whole.To}, true
		}
		return Span{whole.From, end.To}, true
	case opBetween:
		return n.betweenSpan()
	case opStartsWith:
		text, ok := protocol.Text(n.want)
		return spanOf(appendRankText([]byte{kindText}, string(text))), ok
	default:
		return Span{}, false
	}
}

func (n *leaf) betweenSpan() (Span, bool) {
	var ends []Span
	known := true
	protocol.EachItem(n.want, func(end msgp.Raw) bool {
		span, ok := point(end)
		ends, known = append(ends, span), known && ok
		return len(ends) < 3
	})
	if len(ends) != 2 || !known || ends[0].From[0] != ends[1].From[0] {
		return Span{}, false
	}
	return Span{ends[0].From, ends[1].To}, true
}
