package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	patterns "github.com/quorate/quorate/protocol/pattern"
)

// Node is one node of a condition, of the shape of query predicates: "and", "or" and "not"
// have children; the other operators compare an attribute with a value or with what
// valueRef refers to. An attribute is data.<path> (the incoming value; the prefix may be
// left out), stored.<path> (what is stored), key, auth.id or auth.roles.
type Node struct {
	Op        string `json:"op"`
	Attribute string `json:"attribute,omitempty"`
	// Value keeps large numbers if it was decoded with json.Number.
	Value    any     `json:"value,omitempty"`
	ValueRef string  `json:"valueRef,omitempty"`
	Children []*Node `json:"children,omitempty"`
}

// condition is a compiled tree.
type condition struct {
	root *test
	// stored: something in it looks at what is stored.
	stored bool
	// budget is what its patterns may take.
	budget *budget
}

// budget is what the patterns of all policies together may still take.
type budget struct {
	// work is about how many microseconds compiling them takes, program how many
	// instructions they have.
	work, program int
}

func newBudget() *budget { return &budget{work: maxWork, program: maxProgram} }

// test is one compiled node.
type test struct {
	op       string
	left     ref
	right    any
	rightRef *ref
	pattern  *patterns.Pattern
	children []*test
}

// root is where a reference begins.
type root uint8

const (
	rootNowhere root = iota // the name is unknown, and the comparison is false
	rootData
	rootStored
	rootKey
	rootAuth
)

type ref struct {
	root root
	path []string
}

// operators tells how many operands the operators have besides the attribute.
var operators = map[string]int{
	"eq": 1, "neq": 1, "gt": 1, "gte": 1, "lt": 1, "lte": 1, "like": 1, "regex": 1, "in": 1, "between": 1,
	"isNull": 0, "isNotNull": 0, "contains": 1, "containsAll": 1, "containsAny": 1, "startsWith": 1, "endsWith": 1,
}

func compileCondition(n *Node, b *budget) (*condition, error) {
	c := &condition{budget: b}
	left := maxNodes
	var err error
	c.root, err = c.compile(n, maxDepth, &left)
	if err != nil {
		return nil, &FieldError{Field: "condition", Reason: err.Error()}
	}
	return c, nil
}

func (c *condition) compile(n *Node, depth int, left *int) (*test, error) {
	if n == nil {
		return nil, fmt.Errorf("a node is null")
	}
	if *left--; *left < 0 || depth == 0 {
		return nil, fmt.Errorf("it is too large")
	}
	t := &test{op: n.Op}
	switch n.Op {
	case "and", "or", "not":
		if len(n.Children) == 0 || n.Op == "not" && len(n.Children) != 1 {
			return nil, fmt.Errorf("%q has the wrong number of children", n.Op)
		}
		for _, child := range n.Children {
			sub, err := c.compile(child, depth-1, left)
			if err != nil {
				return nil, err
			}
			t.children = append(t.children, sub)
		}
		return t, nil
	}
	return t, c.compileLeaf(n, t)
}

func (c *condition) compileLeaf(n *Node, t *test) error {
	operands, known := operators[n.Op]
	switch {
	case !known:
		return fmt.Errorf("operator %q is unknown", n.Op)
	case n.Attribute == "":
		return fmt.Errorf("%q needs an attribute", n.Op)
	case operands == 1 && n.Value == nil && n.ValueRef == "":
		return fmt.Errorf("%q needs a value or a valueRef", n.Op)
	}
	t.left = parseRef(n.Attribute, rootData)
	t.right = normalize(n.Value)
	if n.ValueRef != "" {
		right := parseRef(n.ValueRef, rootNowhere)
		t.rightRef = &right
	}
	c.stored = c.stored || t.left.root == rootStored || t.rightRef != nil && t.rightRef.root == rootStored
	return t.compileOperand(c.budget)
}

// compileOperand prepares the operators that have a form of their own.
func (t *test) compileOperand(b *budget) (err error) {
	text, isText := t.right.(string)
	list, isList := t.right.([]any)
	switch t.op {
	case "regex", "like":
		if !isText || t.rightRef != nil || len(text) > maxRegexp {
			return fmt.Errorf("%q needs a text of at most %d bytes", t.op, maxRegexp)
		}
		if t.op == "like" {
			text = likeExpression(text)
		}
		if t.pattern, err = b.compile(text); err != nil {
			return fmt.Errorf("regular expression: %w", err)
		}
	case "between":
		if !isList || len(list) != 2 {
			return fmt.Errorf(`"between" needs a list of two values`)
		}
	}
	return nil
}

// compile compiles a regular expression if the budget has it.
func (b *budget) compile(text string) (*patterns.Pattern, error) {
	if b.work -= patterns.Work(text); b.work < 0 {
		return nil, fmt.Errorf("the patterns of the policies take over %d µs to compile", maxWork)
	}
	p, err := patterns.Compile(text)
	if err != nil {
		return nil, err
	}
	if b.program -= p.Size; b.program < 0 {
		return nil, fmt.Errorf("the patterns of the policies compile to more than %d instructions", maxProgram)
	}
	return p, nil
}

// likeExpression is the regular expression of a pattern with % and _.
func likeExpression(like string) string {
	var b strings.Builder
	b.WriteString("(?s)^")
	for _, c := range like {
		switch c {
		case '%':
			b.WriteString(".*")
		case '_':
			b.WriteString(".")
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	b.WriteString("$")
	return b.String()
}

// parseRef reads a reference; one that begins with none of the known names is below
// fallback.
func parseRef(text string, fallback root) ref {
	parts := strings.Split(text, ".")
	switch parts[0] {
	case "data":
		return ref{rootData, parts[1:]}
	case "stored", "existing":
		return ref{rootStored, parts[1:]}
	case "auth":
		return ref{rootAuth, parts[1:]}
	case "key":
		if len(parts) == 1 {
			return ref{rootKey, nil}
		}
	}
	return ref{fallback, slices.Clone(parts)}
}
