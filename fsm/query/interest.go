package query

import (
	"slices"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// maxInterest is how many values an Interest has at most.
const maxInterest = 64

// Interest is a condition that every row of a query meets: the attribute has one of some
// values. The zero value says nothing.
type Interest struct {
	// Attribute is the path of the attribute, Values are the names of its values, as
	// Attribute.ValueName gives them.
	Attribute string
	Values    []string
}

// Narrow reports whether i says anything.
func (i Interest) Narrow() bool { return i.Attribute != "" }

// Interest is a condition that all rows of the query meet.
func (q *Query) Interest() Interest { return q.wants }

// Attribute is the path of an attribute.
type Attribute []string

// ParseAttribute reads a path, whose steps are separated by dots.
func ParseAttribute(path string) Attribute { return strings.Split(path, ".") }

// ValueName names the value that a record has at a, such that equal values have equal
// names; false for a value without one. name is only valid until dst is used again.
func (a Attribute) ValueName(dst []byte, key string, value msgp.Raw) (name []byte, ok bool) {
	r := record{key: key, value: value}
	have, ok := r.get(a)
	if !ok {
		return nil, false
	}
	return scalarName(dst, have)
}

// interestOf finds, among conditions that must all hold, the one on the fewest values, and
// the only keys that rows can have, nil if they can have any.
func interestOf(conditions []node) (best Interest, keys []string) {
	for _, condition := range conditions {
		var found Interest
		var only []string
		switch n := condition.(type) {
		case all:
			found, only = interestOf(n)
		case *leaf:
			found, only = n.interest(), n.keys()
		}
		if found.Narrow() && (!best.Narrow() || len(found.Values) < len(best.Values)) {
			best = found
		}
		if only != nil && (keys == nil || len(only) < len(keys)) {
			keys = only
		}
	}
	return best, keys
}

// wanted lists the values of which an equality wants one; false for other conditions.
func (n *leaf) wanted() (values []msgp.Raw, ok bool) {
	switch {
	case n.ref != nil || n.want == nil:
		return nil, false
	case n.op == opEq:
		return []msgp.Raw{n.want}, true
	case n.op == opIn && n.set != nil:
		protocol.EachItem(n.want, func(v msgp.Raw) bool { values = append(values, v); return true })
		return values, true
	default:
		return nil, false
	}
}

func (n *leaf) interest() Interest {
	values, ok := n.wanted()
	if !ok || len(values) == 0 || len(values) > maxInterest {
		return Interest{}
	}
	i := Interest{Attribute: strings.Join(n.path, ".")}
	for _, value := range values {
		name, ok := scalarName(nil, value)
		if !ok {
			return Interest{}
		}
		i.Values = append(i.Values, string(name))
	}
	slices.Sort(i.Values)
	i.Values = slices.Compact(i.Values)
	return i
}

func (n *leaf) keys() []string {
	values, ok := n.wanted()
	if !ok || len(n.path) != 1 || n.path[0] != keyAttribute {
		return nil
	}
	keys := []string{}
	for _, value := range values {
		if text, ok := protocol.Text(value); ok {
			keys = append(keys, string(text))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
