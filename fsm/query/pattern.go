package query

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// pattern is a compiled pattern. Matching takes time linear in the text, at most size
// instructions for each byte.
type pattern struct {
	re   *regexp.Regexp
	size int
}

// compilePattern compiles the operand of like or regex. A text that is no regular
// expression gives nil, which matches nothing; an error says that it is too large.
func compilePattern(op operator, text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("a pattern is longer than %d bytes", maxPattern)
	}
	expr := unicodeClasses(text)
	if op == opLike {
		expr = likeExpr(text)
	}
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		if tooLarge(err) {
			return nil, fmt.Errorf("a pattern compiles to more than %d instructions", maxProgram)
		}
		return nil, nil
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, nil
	}
	if len(program.Inst) > maxProgram {
		return nil, fmt.Errorf("a pattern compiles to more than %d instructions", maxProgram)
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, nil
	}
	return &pattern{re: re, size: len(program.Inst)}, nil
}

func tooLarge(err error) bool {
	var parse *syntax.Error
	return errors.As(err, &parse) && (parse.Code == syntax.ErrLarge || parse.Code == syntax.ErrNestingDepth)
}

// likeExpr is a LIKE pattern as a regular expression: % is any run and _ any character,
// neither of them a line feed; everything else is itself, in any case.
func likeExpr(text string) string {
	var b strings.Builder
	b.WriteString(`(?i)\A`)
	for text != "" {
		i := strings.IndexAny(text, "%_")
		if i < 0 {
			i = len(text)
		}
		b.WriteString(regexp.QuoteMeta(text[:i]))
		if i < len(text) {
			b.WriteString(`[^\n]`)
			if text[i] == '%' {
				b.WriteByte('*')
				// One run is as good as several.
				for i+1 < len(text) && text[i+1] == '%' {
					i++
				}
			}
			i++
		}
		text = text[i:]
	}
	return b.String() + `\z`
}

// The classes that clients mean by \d, \w and \s.
const (
	digitClass = `\p{Nd}`
	wordClass  = `\p{L}\p{M}\p{Nd}\p{Pc}`
	spaceClass = `\t\n\v\f\r\x{85}\p{Z}`
)

// unicodeClasses widens \d, \w and \s, which are ASCII in Go, and their negations to all
// of Unicode. A negation inside brackets that is not one class stays as it is.
func unicodeClasses(expr string) string {
	if !strings.Contains(expr, `\`) {
		return expr
	}
	var b strings.Builder
	inside := false
	for i := 0; i < len(expr); i++ {
		c := expr[i]
		switch {
		case c == '\\' && i+1 < len(expr):
			i++
			if expr[i] == 'Q' && !inside {
				end := strings.Index(expr[i:], `\E`)
				if end < 0 {
					end = len(expr) - i
				}
				b.WriteString(`\` + expr[i:i+end])
				i += end - 1
				continue
			}
			b.WriteString(escape(expr[i], inside))
		case inside && strings.HasPrefix(expr[i:], "[:") && strings.Contains(expr[i:], ":]"):
			end := i + strings.Index(expr[i:], ":]") + 2
			b.WriteString(expr[i:end])
			i = end - 1
		case c == '[' && !inside:
			inside = true
			b.WriteByte(c)
			// A bracket in the first place is an element.
			for i+1 < len(expr) && (expr[i+1] == '^' || expr[i+1] == ']') {
				i++
				b.WriteByte(expr[i])
				if expr[i] == ']' {
					break
				}
			}
		case c == ']' && inside:
			inside = false
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// escape is what stands for a backslash and c.
func escape(c byte, inside bool) string {
	class, negated := "", false
	switch c {
	case 'd', 'D':
		class, negated = digitClass, c == 'D'
	case 'w', 'W':
		class, negated = wordClass, c == 'W'
	case 's', 'S':
		class, negated = spaceClass, c == 'S'
	default:
		return `\` + string([]byte{c})
	}
	switch {
	case inside && c == 'D':
		return `\P{Nd}`
	case inside && negated:
		return `\` + string([]byte{c})
	case inside:
		return class
	case negated:
		return "[^" + class + "]"
	default:
		return "[" + class + "]"
	}
}
