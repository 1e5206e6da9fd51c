package query

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// Patterns that cost too much before anything is matched.
var (
	errPatternWork = errors.New("the patterns take too long to compile")
	errPatternSize = fmt.Errorf("a pattern compiles to more than %d instructions", maxProgram)
)

// pattern is a compiled pattern. Matching takes time linear in the text, at most size
// instructions for each byte.
type pattern struct {
	re   *regexp.Regexp
	size int
}

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
	return expr, workOf(expr), nil
}

// foldFlag finds what may be the flag that has a pattern match in any case.
var foldFlag = regexp.MustCompile(`\(\?\w*i`)

// workOf is about how many microseconds it takes to compile a regular expression, or more.
// Few bytes can take long: the classes of Unicode are lists of hundreds of ranges, and a
// range that matches in any case is gone through character by character.
func workOf(expr string) int {
	work, folds := len(expr), foldFlag.MatchString(expr)
	for i := 0; i+1 < len(expr); i++ {
		next := expr[i+1]
		switch {
		case expr[i] == '\\':
			if next == 'p' || next == 'P' {
				work += classWork
			}
			i++
		case expr[i] == '-' && folds:
			work += foldedRange(expr[:i], expr[i+1:])
		}
	}
	return work
}

// foldedRange is the work for what may be a range between two parts of an expression.
func foldedRange(before, behind string) int {
	if behind[0] == '\\' {
		return foldWork
	}
	low, _ := utf8.DecodeLastRuneInString(before)
	high, _ := utf8.DecodeRuneInString(behind)
	return min(max(int(high-low), 0)/foldChars, foldWork)
}

// compilePattern compiles what patternExpr returns. A text that is no regular expression
// gives nil, which matches nothing; an error says that it is too large.
func compilePattern(expr string) (*pattern, error) {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		if tooLarge(err) {
			return nil, errPatternSize
		}
		return nil, nil
	}
	if sizeOf(tree) > 2*maxProgram {
		return nil, errPatternSize
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, nil
	}
	if len(program.Inst) > maxProgram {
		return nil, errPatternSize
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, nil
	}
	return &pattern{re: re, size: len(program.Inst)}, nil
}

// sizeOf is about how many instructions a tree compiles to: what is repeated is so many
// times in the program.
func sizeOf(tree *syntax.Regexp) int {
	size := len(tree.Rune)
	if tree.Op != syntax.OpLiteral {
		size = 1
	}
	for _, sub := range tree.Sub {
		size += sizeOf(sub)
	}
	if tree.Op == syntax.OpRepeat {
		size *= max(tree.Min, tree.Max)
	}
	return size
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
