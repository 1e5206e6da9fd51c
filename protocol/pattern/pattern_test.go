package pattern_test

import (
	"errors"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol/pattern"
)

// TestWorkIsSeenInFewBytes has patterns of which each is a thousand times as slow to compile
// as its length lets expect.
func TestWorkIsSeenInFewBytes(t *testing.T) {
	for expr, least := range map[string]int{
		`[` + strings.Repeat(`\pL`, 100) + `]`: 12_800,
		"(?i)[B-\U0001F000]":                   15_000,
		`(?mi:[B-\x{1F000}])`:                  16_384,
	} {
		require.GreaterOrEqual(t, pattern.Work(expr), least, expr)
	}
	for _, expr := range []string{"", `^[a-z0-9_-]+$`, `(?i)[a-zа-я]+`, `a\-b`, "B-\U0001F000"} {
		require.LessOrEqual(t, pattern.Work(expr), len(expr)+10, expr)
	}
}

func TestPatternsAreBoundedInSize(t *testing.T) {
	p, err := pattern.Compile(`^(a|b){1,40}$`)
	require.NoError(t, err)
	require.True(t, p.MatchString("abba"))
	require.Positive(t, p.Size)
	require.LessOrEqual(t, p.Size, pattern.MaxProgram)
	for _, expr := range []string{strings.Repeat("(x{900})", 100), strings.Repeat("("+strings.Repeat("x", 1000)+"){1000}", 3), strings.Repeat("(", 2000) + strings.Repeat(")", 2000)} {
		_, err := pattern.Compile(expr)
		require.ErrorIs(t, err, pattern.ErrSize)
	}
	var problem *syntax.Error
	_, err = pattern.Compile("(")
	require.True(t, errors.As(err, &problem), "%v", err)
}
