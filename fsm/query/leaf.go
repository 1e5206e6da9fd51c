package query

import (
	"bytes"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/pattern"
)

type operator uint8

const (
	opEq operator = iota
	opNeq
	opGt
	opGte
	opLt
	opLte
	opBetween
	opIn
	opContainsAll
	opContainsAny
	opContains
	opStartsWith
	opEndsWith
	opLike
	opRegex
	opIsNull
	opIsNotNull
)

// operators are the leaf operators by their names, which are case-sensitive.
var operators = map[string]operator{
	"eq": opEq, "neq": opNeq, "gt": opGt, "gte": opGte, "lt": opLt, "lte": opLte, "between": opBetween, "in": opIn,
	"containsAll": opContainsAll, "containsAny": opContainsAny, "contains": opContains, "startsWith": opStartsWith,
	"endsWith": opEndsWith, "like": opLike, "regex": opRegex, "isNull": opIsNull, "isNotNull": opIsNotNull,
}

// leaf compares an attribute with an operand.
type leaf struct {
	op   operator
	path []string // empty: no attribute, which never holds
	ref  *reference
	want msgp.Raw // nil: no operand, which never holds
	// identity: the attribute belongs to the caller's identity, of which queries have none.
	identity bool
	// set is the list that want is, for opIn; pattern is want compiled, nil if it is none.
	set     *valueSet
	pattern *pattern.Pattern
}

func (p *parser) leaf(op operator, attribute string, want msgp.Raw, ref string) node {
	n := &leaf{op: op, want: want, ref: p.reference(ref)}
	if protocol.IsNil(want) || n.ref != nil {
		n.want = nil
	}
	if attribute == "" {
		return constant(false)
	}
	n.path = p.path(attribute)
	n.identity = n.path[0] == "auth" && (op == opIsNull || op == opIsNotNull)
	p.operand(n)
	return n
}

// operand prepares the operand of a leaf, so that comparing is cheap.
func (p *parser) operand(n *leaf) {
	count := 0
	isList := protocol.EachItem(n.want, func(msgp.Raw) bool { count++; return count <= maxOperands })
	if p.operands += count; p.operands > maxOperands {
		p.fault(ErrTooComplex, "more than %d operands", maxOperands)
		return
	}
	switch n.op {
	case opIn:
		if isList {
			n.set = newValueSet(n.want)
		}
	case opLike, opRegex:
		text, ok := protocol.Text(n.want)
		if !ok {
			return
		}
		p.compile(n, string(text))
	}
}

// compile prepares the pattern of a leaf.
func (p *parser) compile(n *leaf, text string) {
	expr, work, err := patternExpr(n.op, text)
	if p.work += work; err == nil && p.work > maxWork {
		err = errPatternWork
	}
	if err == nil {
		n.pattern, err = compilePattern(expr)
	}
	if err != nil {
		p.fault(ErrTooComplex, "%s", err)
	} else if n.pattern != nil {
		p.programs += n.pattern.Size
	}
	if p.programs > maxPrograms {
		p.fault(ErrTooComplex, "the patterns compile to more than %d instructions", maxPrograms)
	}
}

func (n *leaf) holds(r *record) bool {
	if n.op == opIsNull || n.op == opIsNotNull {
		present := false
		if !n.identity {
			_, present = r.get(n.path)
		}
		return present == (n.op == opIsNotNull)
	}
	have, ok := r.get(n.path)
	if !ok {
		return false
	}
	want := n.want
	if n.ref != nil {
		want, ok = n.ref.get(r)
	}
	if !ok || want == nil || !r.spend(1+len(have)/stepBytes) {
		return false
	}
	return n.compare(r, have, want)
}

// compare decides for two values that are there.
func (n *leaf) compare(r *record, have, want msgp.Raw) bool {
	switch n.op {
	case opEq:
		return equal(r, have, want)
	case opNeq:
		return !equal(r, have, want)
	case opGt, opGte, opLt, opLte:
		c, ok := compareValues(have, want)
		return ok && n.inOrder(c)
	case opBetween:
		return between(have, want)
	case opIn:
		return n.in(r, have, want)
	case opContainsAll, opContainsAny, opContains:
		return n.contains(r, have, want)
	case opStartsWith, opEndsWith:
		text, ok := protocol.Text(have)
		part, isText := protocol.Text(want)
		if n.op == opStartsWith {
			return ok && isText && bytes.HasPrefix(text, part)
		}
		return ok && isText && bytes.HasSuffix(text, part)
	default:
		return n.matches(r, have, want)
	}
}

func (n *leaf) inOrder(c int) bool {
	switch n.op {
	case opGt:
		return c > 0
	case opGte:
		return c >= 0
	case opLt:
		return c < 0
	default:
		return c <= 0
	}
}

// equal compares at the price of a comparison.
func equal(r *record, a, b msgp.Raw) bool {
	return r.spend(equalSteps(a, b)) && protocol.Equal(a, b)
}

// compareValues orders two numbers, or two texts by their bytes; nothing else has an order.
func compareValues(a, b msgp.Raw) (int, bool) {
	if x, ok := protocol.Number(a); ok {
		y, ok := protocol.Number(b)
		switch {
		case !ok || x != x || y != y:
			return 0, false
		case x < y:
			return -1, true
		case x > y:
			return 1, true
		default:
			return 0, true
		}
	}
	x, ok := protocol.Text(a)
	if !ok {
		return 0, false
	}
	y, ok := protocol.Text(b)
	return bytes.Compare(x, y), ok
}

func between(have, want msgp.Raw) bool {
	var ends []msgp.Raw
	protocol.EachItem(want, func(end msgp.Raw) bool { ends = append(ends, end); return len(ends) < 3 })
	if len(ends) != 2 {
		return false
	}
	low, okLow := compareValues(have, ends[0])
	high, okHigh := compareValues(have, ends[1])
	return okLow && okHigh && low >= 0 && high <= 0
}

// in: of a list, whether the attribute is an element of it; of anything else, whether the
// attribute is a list that has it.
func (n *leaf) in(r *record, have, want msgp.Raw) bool {
	if n.set != nil {
		return n.set.has(r, have)
	}
	if msgp.NextType(want) == msgp.ArrayType {
		return member(r, want, have)
	}
	return member(r, have, want)
}

// member reports whether a list has an element.
func member(r *record, list, element msgp.Raw) bool {
	found := false
	protocol.EachItem(list, func(item msgp.Raw) bool {
		found = r.spend(1) && equal(r, item, element)
		return !found && r.steps <= maxSteps
	})
	return found
}

// contains: of a list, whether it has elements; of a text, whether it has parts, in any
// case. A single operand counts as a list of one.
func (n *leaf) contains(r *record, have, want msgp.Raw) bool {
	var has func(part msgp.Raw) bool
	if text, ok := protocol.Text(have); ok {
		folded := fold(text)
		has = func(part msgp.Raw) bool {
			p, ok := protocol.Text(part)
			return ok && r.spend(1+len(folded)/stepBytes) && bytes.Contains(folded, fold(p))
		}
	} else if msgp.NextType(have) == msgp.ArrayType {
		has = func(part msgp.Raw) bool { return member(r, have, part) }
	} else {
		return false
	}
	if n.op == opContains || msgp.NextType(want) != msgp.ArrayType {
		return has(want)
	}
	every, any := true, false
	protocol.EachItem(want, func(part msgp.Raw) bool {
		if has(part) {
			any = true
			return n.op == opContainsAll
		}
		every = false
		return n.op == opContainsAny && r.spend(1)
	})
	if n.op == opContainsAll {
		return every
	}
	return any
}

// matches applies a pattern.
func (n *leaf) matches(r *record, have, want msgp.Raw) bool {
	text, ok := protocol.Text(have)
	if !ok {
		return false
	}
	p := n.pattern
	if n.ref != nil {
		source, ok := protocol.Text(want)
		if !ok {
			return false
		}
		expr, work, err := patternExpr(n.op, string(source))
		if err == nil && !r.spend(recompile+work*workSteps) {
			return false
		}
		if err == nil {
			p, err = compilePattern(expr)
		}
		if err != nil {
			r.spend(maxSteps + 1) // not "no": this pattern is beyond what is decided
			return false
		}
	}
	return p != nil && r.spend(len(text)*(1+p.Size/patternStep)) && p.Match(text)
}
