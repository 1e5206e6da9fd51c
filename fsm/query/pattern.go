package query

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/quorate/quorate/protocol/pattern"
)

// errPatternWork refuses patterns that cost too much before anything is matched.
var errPatternWork = errors.New("the patterns take too long to compile")

// patternExpr is the operand of like or regex as a regular expression, and about how many
// microseconds it takes to compile it. The error says that it is too long.
func patternExpr(op operator, text string) (expr string, work int, err error) {
	if len(text) > maxPattern {
		return "", 0, fmt.Errorf("a pattern is longer than %d bytes", maxPattern)
	}
	if op == opLike {
		expr = likeExpr(text)
		return expr, len(expr), nil
	}
	expr = unicodeClasses(text)
	return expr, pattern.Work(expr), nil
}

// compilePattern compiles what patternExpr returns. A text that is no regular expression
// gives nil, which matches nothing; an error says that it is too large.
func compilePattern(expr string) (*pattern.Pattern, error) {
	p, err := pattern.Compile(expr)
	if errors.Is(err, pattern.ErrSize) {
		return nil, err
	}
	return p, nil
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
			for _, first := range []byte("^]") {
				if i+1 < len(expr) && expr[i+1] == first {
					i++
					b.WriteByte(first)
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
