// Package pattern compiles regular expressions that come from outside in bounded time and
// memory. Queries and policies share it.
package pattern

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

// MaxProgram is how many instructions a pattern compiles to at most.
const MaxProgram = 2048

const (
	// classWork and foldWork are about how many microseconds it takes to compile a class of
	// Unicode, and the longest range that matches in any case, of which foldChars characters
	// take one.
	classWork = 128
	foldWork  = 1 << 14
	foldChars = 8
)

// ErrSize says that a pattern compiles to more than MaxProgram instructions.
var ErrSize = fmt.Errorf("a pattern compiles to more than %d instructions", MaxProgram)

// Pattern is a compiled regular expression. It is immutable and safe for concurrent use.
type Pattern struct {
	// Regexp matches in time linear in the text, Size instructions for each byte at most.
	*regexp.Regexp
	// Size is the number of instructions.
	Size int
}

// foldFlag finds what may be the flag that has a pattern match in any case.
var foldFlag = regexp.MustCompile(`\(\?\w*i`)

// Work is about how many microseconds Compile takes for a regular expression, or more. It
// takes time linear in expr. Few bytes can take long: the classes of Unicode are lists of
// hundreds of ranges, and a range that matches in any case is gone through character by
// character.
func Work(expr string) int {
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

// Compile compiles a regular expression. The errors are ErrSize, before anything of that
// size is made, and *syntax.Error for a text that is no regular expression. Whoever calls it
// bounds Work first.
func Compile(expr string) (*Pattern, error) {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		if tooLarge(err) {
			return nil, ErrSize
		}
		return nil, err
	}
	if sizeOf(tree) > 2*MaxProgram {
		return nil, ErrSize
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	if len(program.Inst) > MaxProgram {
		return nil, ErrSize
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, err
	}
	return &Pattern{Regexp: re, Size: len(program.Inst)}, nil
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
