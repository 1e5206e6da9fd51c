package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseExpression reads a condition as text: comparisons (== != > >= < <= in contains
// containsAll containsAny startsWith endsWith) of references (data.x, stored.x, key,
// auth.id, auth.roles) with literals ('text', numbers, true, false, null, lists in
// brackets) or references, joined by && and ||, negated by !, in parentheses. The error is
// a *FieldError of "conditionExpr" that shows the place.
func ParseExpression(text string) (*Node, error) {
	if len(text) > maxExpression {
		return nil, wrong("conditionExpr", "is longer than %d bytes", maxExpression)
	}
	p := &parser{text: text}
	p.next()
	n, err := p.or(maxDepth)
	if err == nil && p.token.kind != tokenEnd {
		err = p.unexpected("the end")
	}
	if err != nil {
		return nil, wrong("conditionExpr", "%s\n%s\n%s^", err, text, strings.Repeat(" ", p.token.at))
	}
	return n, nil
}

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenWord
	tokenText
	tokenNumber
	tokenSign // operators and brackets
	tokenBad
)

type token struct {
	kind tokenKind
	text string
	at   int
}

type parser struct {
	text  string
	pos   int
	token token
}

// signs are the tokens that are not words; longer ones first.
var signs = []string{"&&", "||", "==", "!=", ">=", "<=", ">", "<", "!", "(", ")", "[", "]", ","}

func isWord(c byte) bool {
	return c == '_' || c == '.' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// next reads the next token.
func (p *parser) next() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
	start := p.pos
	take := func(kind tokenKind, end int) {
		p.token = token{kind, p.text[start:end], start}
		p.pos = end
	}
	if start == len(p.text) {
		take(tokenEnd, start)
		return
	}
	c := p.text[start]
	if c == '\'' {
		end := strings.IndexByte(p.text[start+1:], '\'')
		if end < 0 {
			take(tokenBad, len(p.text))
			return
		}
		take(tokenText, start+end+2)
		p.token.text = p.token.text[1 : end+1]
		return
	}
	for _, sign := range signs {
		if strings.HasPrefix(p.text[start:], sign) {
			take(tokenSign, start+len(sign))
			return
		}
	}
	end := start
	for end < len(p.text) && (isWord(p.text[end]) || c == '-' && end == start) {
		end++
	}
	switch {
	case end == start:
		take(tokenBad, start+1)
	case c == '-' || c >= '0' && c <= '9':
		take(tokenNumber, end)
	default:
		take(tokenWord, end)
	}
}

// sign takes a token that is text, if it is next.
func (p *parser) sign(text string) bool {
	if p.token.kind != tokenSign || p.token.text != text {
		return false
	}
	p.next()
	return true
}

func (p *parser) unexpected(want string) error {
	if p.token.kind == tokenEnd {
		return fmt.Errorf("expected %s, but it ends", want)
	}
	return fmt.Errorf("expected %s at position %d", want, p.token.at+1)
}

func (p *parser) or(depth int) (*Node, error) { return p.join("or", "||", p.and, depth) }

func (p *parser) and(depth int) (*Node, error) { return p.join("and", "&&", p.unary, depth) }

// join parses operands of one level with the operator between them.
func (p *parser) join(op, sign string, operand func(int) (*Node, error), depth int) (*Node, error) {
	first, err := operand(depth)
	if err != nil {
		return nil, err
	}
	all := []*Node{first}
	for p.sign(sign) {
		n, err := operand(depth)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	if len(all) == 1 {
		return first, nil
	}
	return &Node{Op: op, Children: all}, nil
}

func (p *parser) unary(depth int) (*Node, error) {
	if depth == 0 {
		return nil, fmt.Errorf("it is nested too deeply")
	}
	switch {
	case p.sign("!"):
		n, err := p.unary(depth - 1)
		return &Node{Op: "not", Children: []*Node{n}}, err
	case p.sign("("):
		n, err := p.or(depth - 1)
		if err == nil && !p.sign(")") {
			err = p.unexpected(`")"`)
		}
		return n, err
	default:
		return p.comparison()
	}
}

// operand is one side of a comparison: a reference or a literal.
type operand struct {
	ref   string
	value any
}

func (o operand) isNull() bool { return o.ref == "" && o.value == nil }

// expressionOps are the operators of comparisons, with their names in trees, and those
// which mean the same with the sides exchanged.
var expressionOps = map[string][2]string{
	"==": {"eq", "eq"}, "!=": {"neq", "neq"}, ">": {"gt", "lt"}, ">=": {"gte", "lte"}, "<": {"lt", "gt"}, "<=": {"lte", "gte"},
	"in": {"in", "contains"}, "contains": {"contains", "in"},
	"containsAll": {"containsAll"}, "containsAny": {"containsAny"}, "startsWith": {"startsWith"}, "endsWith": {"endsWith"},
}

func (p *parser) comparison() (*Node, error) {
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	op, ok := expressionOps[p.token.text]
	if !ok || p.token.kind != tokenSign && p.token.kind != tokenWord {
		return nil, p.unexpected("an operator")
	}
	operator := p.token
	p.next()
	right, err := p.operand()
	if err != nil {
		return nil, err
	}
	if left.isNull() || right.isNull() {
		return nullTest(op[0], left, right)
	}
	name := op[0]
	if left.ref == "" {
		left, right, name = right, left, op[1]
	}
	if left.ref == "" || name == "" {
		p.token = operator
		return nil, fmt.Errorf("%q needs a reference on its left", operator.text)
	}
	return &Node{Op: name, Attribute: left.ref, Value: right.value, ValueRef: right.ref}, nil
}

func nullTest(op string, left, right operand) (*Node, error) {
	attribute := left.ref + right.ref
	name, ok := map[string]string{"eq": "isNull", "neq": "isNotNull"}[op]
	if !ok || attribute == "" {
		return nil, fmt.Errorf("null can be compared with a reference, by == and != only")
	}
	return &Node{Op: name, Attribute: attribute}, nil
}

func (p *parser) operand() (operand, error) {
	t := p.token
	if p.sign("[") {
		return p.list()
	}
	switch t.kind {
	case tokenText:
		p.next()
		return operand{value: t.text}, nil
	case tokenNumber:
		if n, err := strconv.ParseInt(t.text, 10, 64); err == nil {
			p.next()
			return operand{value: n}, nil
		}
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			return operand{}, fmt.Errorf("%q is not a number", t.text)
		}
		p.next()
		return operand{value: f}, nil
	case tokenWord:
		return p.word(t.text)
	default:
		return operand{}, p.unexpected("a value")
	}
}

// word is a constant or a reference.
func (p *parser) word(text string) (operand, error) {
	switch text {
	case "true", "false":
		p.next()
		return operand{value: text == "true"}, nil
	case "null":
		p.next()
		return operand{}, nil
	}
	if r := parseRef(text, rootNowhere); r.root == rootNowhere || strings.HasSuffix(text, ".") || strings.Contains(text, "..") {
		return operand{}, fmt.Errorf("%q is not a reference to data, stored, key or auth", text)
	}
	p.next()
	return operand{ref: text}, nil
}

// list is the rest of a list of literals.
func (p *parser) list() (operand, error) {
	list := []any{}
	for !p.sign("]") {
		if len(list) > 0 && !p.sign(",") {
			return operand{}, p.unexpected(`"," or "]"`)
		}
		o, err := p.operand()
		if err != nil {
			return operand{}, err
		}
		if o.ref != "" {
			return operand{}, fmt.Errorf("lists hold values only")
		}
		list = append(list, o.value)
	}
	return operand{value: list}, nil
}
