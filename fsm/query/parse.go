package query

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// parser reads the parts of a query object. The first fault is kept.
type parser struct {
	query *Query
	// conditions must all hold.
	conditions []node
	nodes      int
	operands   int
	programs   int
	work       int
	err        error
}

func (p *parser) fault(class error, format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s", class, fmt.Sprintf(format, args...))
	}
}

// count notes one more condition and reports whether there is room.
func (p *parser) count() bool {
	if p.nodes++; p.nodes > maxNodes {
		p.fault(ErrTooComplex, "more than %d conditions", maxNodes)
	}
	return p.err == nil
}

// literal reads the filter of POST /sync: names are not paths there, and nil is a value.
func (p *parser) literal(filter msgp.Raw) {
	for name, want := range protocol.Fields(filter) {
		if p.count() {
			p.conditions = append(p.conditions, &literal{name: name, want: want})
		}
	}
}

func (p *parser) where(raw msgp.Raw) {
	if protocol.IsNil(raw) {
		return
	}
	if msgp.NextType(raw) != msgp.MapType {
		p.fault(ErrMalformed, "where is not a map")
		return
	}
	for name, want := range protocol.Fields(raw) {
		if !p.count() {
			return
		}
		p.conditions = append(p.conditions, p.leaf(opEq, name, want, ""))
	}
}

func (p *parser) predicate(raw msgp.Raw) {
	if !protocol.IsNil(raw) {
		p.conditions = append(p.conditions, p.node(raw, 1))
	}
}

// node reads a predicate node. After a fault it returns any node.
func (p *parser) node(raw msgp.Raw, depth int) node {
	switch {
	case !p.count():
		return constant(false)
	case depth > maxDepth:
		p.fault(ErrTooComplex, "conditions are nested more than %d deep", maxDepth)
		return constant(false)
	case msgp.NextType(raw) != msgp.MapType:
		p.fault(ErrMalformed, "predicate is not a map")
		return constant(false)
	}
	fields := protocol.Fields(raw)
	name, ok := protocol.Text(fields["op"])
	if !ok {
		p.fault(ErrMalformed, "predicate has no op")
		return constant(false)
	}
	switch op := string(name); op {
	case "and", "or", "not":
		return p.branch(op, fields["children"], depth)
	case "match", "matchPhrase", "matchPrefix":
		p.fault(ErrUnsupported, "operator %s", op)
		return constant(false)
	default:
		code, known := operators[op]
		if !known {
			p.fault(ErrMalformed, "operator %q is unknown", shorten(op))
			return constant(false)
		}
		return p.leaf(code, p.text(fields, "attribute"), fields["value"], p.text(fields, "valueRef"))
	}
}

// text reads an optional text; nil is absent.
func (p *parser) text(fields map[string]msgp.Raw, name string) string {
	raw := fields[name]
	if protocol.IsNil(raw) {
		return ""
	}
	v, ok := protocol.Text(raw)
	if !ok {
		p.fault(ErrMalformed, "%s is not text", name)
	}
	return string(v)
}

func (p *parser) branch(op string, raw msgp.Raw, depth int) node {
	var children []node
	isList := protocol.EachItem(raw, func(child msgp.Raw) bool {
		if op == "not" && len(children) == 1 {
			p.node(child, depth+1) // checked, and passed over
			return p.err == nil
		}
		children = append(children, p.node(child, depth+1))
		return p.err == nil
	})
	if !isList && !protocol.IsNil(raw) {
		p.fault(ErrMalformed, "children is not a list")
	}
	switch {
	case op == "and":
		return all(children)
	case op == "or":
		return some(children)
	case len(children) == 0:
		return constant(true)
	default:
		return not{children[0]}
	}
}

func (p *parser) sort(raw msgp.Raw) {
	if protocol.IsNil(raw) {
		return
	}
	if msgp.NextType(raw) == msgp.MapType {
		protocol.EachField(raw, func(name []byte, direction msgp.Raw) bool {
			p.column(string(name), direction)
			return p.err == nil
		})
		return
	}
	isList := protocol.EachItem(raw, func(item msgp.Raw) bool {
		fields := protocol.Fields(item)
		name, ok := protocol.Text(fields["field"])
		if !ok {
			p.fault(ErrMalformed, "sort has an entry without field")
		}
		p.column(string(name), fields["direction"])
		return p.err == nil
	})
	if !isList {
		p.fault(ErrMalformed, "sort is neither list nor map")
	}
}

func (p *parser) column(name string, direction msgp.Raw) {
	text, _ := protocol.Text(direction)
	c := column{name: name, descending: string(text) == "desc"}
	if !c.descending && string(text) != "asc" {
		p.fault(ErrMalformed, "sort direction of %q is neither asc nor desc", shorten(name))
	}
	if p.query.order = append(p.query.order, c); len(p.query.order) > maxColumns {
		p.fault(ErrTooComplex, "more than %d sort fields", maxColumns)
	}
}

func (p *parser) limit(raw msgp.Raw) {
	if protocol.IsNil(raw) {
		return
	}
	v, ok := protocol.Number(raw)
	if !ok || !(v >= 0 && v <= math.MaxUint32) || v != math.Trunc(v) {
		p.fault(ErrMalformed, "limit is not a whole number from 0 to %d", uint32(math.MaxUint32))
		return
	}
	p.query.SetLimit(int64(v))
}

func (p *parser) cursor(raw msgp.Raw) {
	if protocol.IsNil(raw) {
		return
	}
	text, ok := protocol.Text(raw)
	if !ok {
		p.fault(ErrMalformed, "cursor is not text")
	}
	p.query.cursor = string(text)
}

func (p *parser) names(what string, raw msgp.Raw, limit int) (names []string) {
	isList := protocol.EachItem(raw, func(item msgp.Raw) bool {
		name, ok := protocol.Text(item)
		if !ok {
			p.fault(ErrMalformed, "%s has an element that is not text", what)
		}
		if names = append(names, string(name)); len(names) > limit {
			p.fault(ErrTooComplex, "more than %d %s", limit, what)
		}
		return p.err == nil
	})
	if !isList && !protocol.IsNil(raw) {
		p.fault(ErrMalformed, "%s is not a list", what)
	}
	return names
}

func (p *parser) fields(raw msgp.Raw) { p.project(p.names("fields", raw, maxFields)) }

// project keeps the named fields; none keeps all.
func (p *parser) project(names []string) {
	if len(names) > maxFields {
		p.fault(ErrTooComplex, "more than %d fields", maxFields)
	}
	if len(names) == 0 {
		return
	}
	p.query.fields = make(map[string]struct{}, len(names))
	for _, name := range names {
		p.query.fields[name] = struct{}{}
	}
}

func (p *parser) groupBy(raw msgp.Raw) {
	for _, name := range p.names("groupBy", raw, maxColumns) {
		if !slices.Contains(p.query.groups, name) { // a group is a map: it has each name once
			p.query.groups = append(p.query.groups, name)
		}
	}
}

func (p *parser) aggregations(raw msgp.Raw) {
	isList := protocol.EachItem(raw, func(item msgp.Raw) bool {
		fields := protocol.Fields(item)
		name, _ := protocol.Text(fields["func"])
		t := total{fn: string(name), field: p.text(fields, "field")}
		switch t.fn {
		case "count", "sum", "min", "max", "avg":
		default:
			p.fault(ErrMalformed, "aggregation %q is unknown", shorten(t.fn))
		}
		if t.fn == "count" || t.field == "" || slices.Contains(p.query.totals, t) {
			return p.err == nil // a count is always there, and nothing is left of the others
		}
		if p.query.totals = append(p.query.totals, t); len(p.query.totals) > maxColumns {
			p.fault(ErrTooComplex, "more than %d aggregations", maxColumns)
		}
		return p.err == nil
	})
	if !isList && !protocol.IsNil(raw) {
		p.fault(ErrMalformed, "aggregations is not a list")
	}
}

// path splits an attribute into its steps.
func (p *parser) path(attribute string) []string {
	steps := strings.Split(attribute, ".")
	if len(steps) > maxPath {
		p.fault(ErrTooComplex, "an attribute has more than %d steps", maxPath)
	}
	return steps
}

// shorten bounds what foreign text adds to an error.
func shorten(text string) string {
	const limit = 64
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "..."
}
