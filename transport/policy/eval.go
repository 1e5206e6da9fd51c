package policy

import (
	"strings"

	"github.com/tinylib/msgp/msgp"
)

// truth is the value of a condition.
type truth uint8

const (
	no truth = iota
	maybe
	yes
)

func is(b bool) truth {
	if b {
		return yes
	}
	return no
}

// subject is what a condition looks at. Values are decoded when something first looks at
// them.
type subject struct {
	caller Caller
	// row is nil while no row is known, and key while not even its key is.
	row          *Row
	key          *string
	stored, data decoded
}

type decoded struct {
	done, known bool
	value       any
}

// get decodes raw once. What cannot be decoded is not known.
func (d *decoded) get(raw []byte) (value any, known bool) {
	if !d.done {
		d.done, d.known = true, true
		if len(raw) > 0 {
			v, _, err := msgp.ReadIntfBytes(raw)
			d.value, d.known = normalize(v), err == nil
		}
	}
	return d.value, d.known
}

// lookup returns what r refers to, nil for nothing, and whether that can be told.
func (s *subject) lookup(r *ref) (value any, known bool) {
	switch r.root {
	case rootAuth:
		return s.auth(r.path), true
	case rootKey:
		switch {
		case s.row != nil:
			return s.row.Key, true
		case s.key != nil:
			return *s.key, true
		}
		return nil, false
	case rootData, rootStored:
		if s.row == nil {
			return nil, false
		}
		if r.root == rootData {
			value, known = s.data.get(s.row.Incoming)
		} else if value, known = s.stored.get(s.row.Stored); s.row.StoredUnknown {
			known = false
		}
		return walk(value, r.path), known
	default:
		return nil, true
	}
}

func (s *subject) auth(path []string) any {
	if s.caller.ID == "" {
		return nil
	}
	if len(path) == 0 {
		return map[string]any{}
	}
	switch {
	case len(path) > 1:
		return nil
	case path[0] == "id":
		return s.caller.ID
	case path[0] == "roles":
		list := make([]any, len(s.caller.Roles))
		for i, role := range s.caller.Roles {
			list[i] = role
		}
		return list
	}
	return nil
}

// walk follows a path into a value; nil if it leads nowhere.
func walk(value any, path []string) any {
	for _, name := range path {
		m, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = m[name]
	}
	return value
}

// holds evaluates the condition; none holds always.
func (c *condition) holds(s *subject) truth {
	if c == nil {
		return yes
	}
	return c.root.holds(s)
}

func (t *test) holds(s *subject) truth {
	switch t.op {
	case "and":
		result := yes
		for _, child := range t.children {
			result = min(result, child.holds(s))
		}
		return result
	case "or":
		result := no
		for _, child := range t.children {
			result = max(result, child.holds(s))
		}
		return result
	case "not":
		return yes - t.children[0].holds(s)
	}
	left, known := s.lookup(&t.left)
	right := t.right
	if t.rightRef != nil {
		var rightKnown bool
		right, rightKnown = s.lookup(t.rightRef)
		known = known && rightKnown
	}
	if !known {
		return maybe
	}
	return is(t.compare(left, right))
}

// compare applies a leaf's operator. A missing value makes every comparison false but the
// tests for it.
func (t *test) compare(left, right any) bool {
	switch t.op {
	case "isNull":
		return left == nil
	case "isNotNull":
		return left != nil
	}
	if left == nil || right == nil && t.pattern == nil {
		return false
	}
	switch t.op {
	case "eq":
		return equal(left, right)
	case "neq":
		return !equal(left, right)
	case "in":
		list, ok := right.([]any)
		return ok && has(list, left)
	case "contains":
		return contains(left, right)
	case "containsAll", "containsAny":
		return containsList(left, right, t.op == "containsAll")
	case "between":
		bounds, _ := right.([]any)
		return ordered(left, bounds[0], "gte") && ordered(left, bounds[1], "lte")
	case "gt", "gte", "lt", "lte":
		return ordered(left, right, t.op)
	}
	return t.compareText(left, right)
}

func (t *test) compareText(left, right any) bool {
	text, ok := left.(string)
	if !ok {
		return false
	}
	if t.pattern != nil {
		return t.pattern.MatchString(text)
	}
	part, ok := right.(string)
	switch {
	case !ok:
		return false
	case t.op == "startsWith":
		return strings.HasPrefix(text, part)
	default:
		return strings.HasSuffix(text, part)
	}
}
