package query

import (
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// Pseudo attributes.
const (
	keyAttribute   = "_key"
	valueAttribute = "_value"
)

// record is one record while a filter looks at it.
type record struct {
	key   string
	value msgp.Raw
	// steps taken so far; beyond maxSteps nothing holds.
	steps int
	// index holds the top-level fields of a value with many, once they were passed over
	// more than once.
	index  map[string]msgp.Raw
	walked bool
	// keyValue is the key as a value.
	keyValue msgp.Raw
}

// indexedFields is how many fields a value has that is worth an index.
const indexedFields = 24

// spend takes n steps and reports whether they were there.
func (r *record) spend(n int) bool {
	r.steps += n
	return r.steps <= maxSteps
}

// field returns a top-level field.
func (r *record) field(name string) (msgp.Raw, bool) {
	if r.index != nil {
		r.spend(1)
		value, ok := r.index[name]
		return value, ok
	}
	value, steps, ok := protocol.Field(r.value, name)
	r.spend(steps)
	if r.walked && steps > indexedFields {
		r.spend(4 * steps)
		r.index = make(map[string]msgp.Raw, steps)
		// As protocol.Field finds them: what is found must not depend on what was looked for.
		protocol.EachField(r.value, func(name []byte, field msgp.Raw) bool { r.index[string(name)] = field; return true })
	}
	r.walked = true
	return value, ok
}

// get returns what lies at a path; false if nothing does, or nil.
func (r *record) get(path []string) (msgp.Raw, bool) {
	if len(path) == 1 {
		switch path[0] {
		case keyAttribute:
			if r.keyValue == nil {
				r.keyValue = msgp.AppendString(nil, r.key)
			}
			return r.keyValue, true
		case valueAttribute:
			if len(r.value) > 0 && msgp.NextType(r.value) != msgp.MapType {
				return r.value, !protocol.IsNil(r.value)
			}
		}
	}
	value, ok := r.field(path[0])
	for _, step := range path[1:] {
		if !ok || r.steps > maxSteps {
			return nil, false
		}
		var steps int
		value, steps, ok = protocol.Field(value, step)
		r.spend(steps)
	}
	return value, ok && !protocol.IsNil(value)
}

// node is a condition. What it says of a record whose steps are used up does not count.
type node interface {
	holds(r *record) bool
}

type constant bool

func (c constant) holds(*record) bool { return bool(c) }

// all holds if all children do.
type all []node

func (n all) holds(r *record) bool {
	for _, child := range n {
		if !r.spend(1) || !child.holds(r) {
			return false
		}
	}
	return true
}

// some holds if any child does.
type some []node

func (n some) holds(r *record) bool {
	for _, child := range n {
		if !r.spend(1) {
			return false
		}
		if child.holds(r) {
			return true
		}
	}
	return false
}

type not struct{ child node }

func (n not) holds(r *record) bool { return r.spend(1) && !n.child.holds(r) }

// both is the conjunction of conditions, nil if there are none.
func both(conditions []node) node {
	switch len(conditions) {
	case 0:
		return nil
	case 1:
		return conditions[0]
	default:
		return all(conditions)
	}
}

// literal holds if a top-level field equals a value, where nil is one like others.
type literal struct {
	name string
	want msgp.Raw
}

func (n *literal) holds(r *record) bool {
	have, ok := r.field(n.name)
	return ok && r.spend(equalSteps(have, n.want)) && protocol.Equal(n.want, have)
}

// equalSteps is what a comparison of two values costs.
func equalSteps(a, b msgp.Raw) int { return 1 + min(len(a), len(b))/stepBytes }

// reference is the operand of a leaf that lies in the record itself.
type reference struct {
	// whole: the value of the record; otherwise path, if it is not empty. A reference
	// with neither resolves to nothing.
	whole bool
	path  []string
}

func (p *parser) reference(text string) *reference {
	if text == "" {
		return nil
	}
	if text == "data" {
		return &reference{whole: true}
	}
	if rest, ok := strings.CutPrefix(text, "data."); ok {
		return &reference{path: p.path(rest)}
	}
	return &reference{} // the caller's identity, or a name space that there is not
}

func (f *reference) get(r *record) (msgp.Raw, bool) {
	switch {
	case f.whole:
		return r.value, !protocol.IsNil(r.value)
	case f.path != nil:
		return r.get(f.path)
	default:
		return nil, false
	}
}
