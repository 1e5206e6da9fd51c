package query_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm/query"
	"github.com/quorate/quorate/protocol"
)

// scalars are values with little between them, of all kinds.
var scalars = []any{
	nil, false, true, math.Inf(-1), -1e300, -5, -1, math.Copysign(0, -1), 0, 0.5, 1, 1.0, uint64(1 << 60), int64(1 << 60), math.Inf(1), math.NaN(),
	"", "\x00", "\x00\x00", "\x00\x01", "\x01", "a", "a\x00", "a\x00b", "ab", "A", "ä", "\xff", "\xff\xff",
	strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 257), strings.Repeat("x", 300) + "y", strings.Repeat("\x00", 300),
	l{}, l{1}, m{}, m{"b": 1}, []byte{1},
}

func TestRanksHaveTheOrderOfRows(t *testing.T) {
	q := compile(t, m{"sort": m{"v": "asc"}})
	path := query.ParseAttribute("v")
	rank := func(v any) string { return string(path.AppendRank(nil, "k", raw(t, m{"v": v}))) }
	require.Equal(t, rank(nil), string(path.AppendRank(nil, "k", raw(t, m{}))))
	for _, a := range scalars {
		p := q.Place("k", raw(t, m{"v": a}))
		x := rank(a)
		require.Equal(t, len(x), query.RankLen(x+"key"), "%v", a)
		require.Zero(t, query.RankLen(x[:len(x)-1]), "%v", a)
		for _, b := range scalars {
			o := q.Place("k", raw(t, m{"v": b}))
			y := rank(b)
			require.False(t, x != y && strings.HasPrefix(y, x), "%v begins %v", a, b)
			switch c := q.Compare(&p, &o); {
			case c < 0:
				require.LessOrEqual(t, x, y, "%v and %v", a, b)
			case c == 0:
				require.Equal(t, x, y, "%v and %v", a, b)
			}
			require.Equal(t, x > y, q.Passed(&p, &o), "%v and %v", a, b)
			if protocol.Equal(raw(t, a), raw(t, b)) {
				require.Equal(t, x, y, "%v and %v", a, b)
				require.True(t, query.Equatable([]byte(x)) || a == nil || x[0] > rank("")[0], "%v", a)
			}
		}
	}
	require.False(t, query.Equatable([]byte(rank(math.NaN()))))
}

func TestWhatCannotBeLookedForIsOpaque(t *testing.T) {
	const fields = 1 << 20 // a step each
	wide := msgp.AppendMapHeader(nil, fields)
	for range fields {
		wide = append(wide, 0xa1, 'x', 0xc0)
	}
	value := append(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "a"), wide...)
	require.True(t, contains([]query.Span{query.SpanOpaque}, query.ParseAttribute("a.b").AppendRank(nil, "k", value)))
	require.False(t, contains([]query.Span{query.SpanOpaque}, query.ParseAttribute("a").AppendRank(nil, "k", value)))
}

func contains(spans []query.Span, rank []byte) bool {
	for _, s := range spans {
		if s.From <= string(rank) && string(rank) < s.To {
			return true
		}
	}
	return false
}

func TestNarrowings(t *testing.T) {
	for name, tc := range map[string]struct {
		query     any
		attribute string // empty: nothing narrows
		points    bool
		in, out   l
	}{
		"where":       {m{"where": m{"a.b": 5}}, "a.b", true, l{5, 5.0}, l{4, "5", true, nil}},
		"eq text":     {m{"predicate": test("eq", "a", "x")}, "a", true, l{"x"}, l{"X", "xx", ""}},
		"eq list":     {m{"predicate": test("eq", "a", l{1})}, "", false, nil, nil},
		"eq nan":      {m{"predicate": test("eq", "a", math.NaN())}, "", false, nil, nil},
		"eq nil":      {m{"where": m{"a": nil}}, "", false, nil, nil},
		"neq":         {m{"predicate": test("neq", "a", 1)}, "", false, nil, nil},
		"in":          {m{"predicate": test("in", "a", l{3, 1, "x", nil, 1.0})}, "a", true, l{1, 3, "x"}, l{2, "y", nil}},
		"in none":     {m{"predicate": test("in", "a", l{})}, "a", true, nil, l{1, nil, "x"}},
		"in lists":    {m{"predicate": test("in", "a", l{1, l{2}})}, "", false, nil, nil},
		"in a list":   {m{"predicate": test("in", "a", 1)}, "", false, nil, nil},
		"gt":          {m{"predicate": test("gt", "a", 5)}, "a", false, l{6, math.Inf(1)}, l{4, "6", true, nil}},
		"lte":         {m{"predicate": test("lte", "a", 5)}, "a", false, l{5, -1}, l{6, "1", false, nil}},
		"gt text":     {m{"predicate": test("gt", "a", "m")}, "a", false, l{"n", "\xff"}, l{"a", 9, nil}},
		"gt bool":     {m{"predicate": test("gt", "a", false)}, "", false, nil, nil},
		"between":     {m{"predicate": test("between", "a", l{1, 3})}, "a", false, l{1, 2, 3}, l{0, 4, "2"}},
		"backwards":   {m{"predicate": test("between", "a", l{3, 1})}, "a", false, nil, l{1, 2, 3}},
		"mixed ends":  {m{"predicate": test("between", "a", l{1, "x"})}, "", false, nil, nil},
		"startsWith":  {m{"predicate": test("startsWith", "a", "ab")}, "a", false, l{"ab", "abc"}, l{"aa", "ac", "AB", 1}},
		"any text":    {m{"predicate": test("startsWith", "a", "")}, "a", false, l{"", "x"}, l{1, nil}},
		"long":        {m{"predicate": test("startsWith", "a", strings.Repeat("x", 300))}, "a", false, l{strings.Repeat("x", 301)}, l{strings.Repeat("x", 200)}},
		"isNull":      {m{"predicate": test("isNull", "a", nil)}, "a", false, l{nil}, l{1, ""}},
		"isNotNull":   {m{"predicate": test("isNotNull", "a", nil)}, "", false, nil, nil},
		"reference":   {m{"predicate": m{"op": "eq", "attribute": "a", "value": 1, "valueRef": "data.b"}}, "", false, nil, nil},
		"or":          {m{"predicate": m{"op": "or", "children": l{test("eq", "a", 1)}}}, "", false, nil, nil},
		"not":         {m{"predicate": m{"op": "not", "children": l{test("eq", "a", 1)}}}, "", false, nil, nil},
		"and":         {m{"predicate": m{"op": "and", "children": l{test("gt", "a", 1), test("lt", "a", 4)}}}, "a", false, l{2, 3}, l{0, 5}},
		"and a point": {m{"where": m{"a": 2}, "predicate": test("in", "a", l{1, 2, 3})}, "a", true, l{2}, l{1, 3}},
		"and no more": {m{"where": m{"a": 2}, "predicate": test("gt", "a", 5)}, "a", true, nil, l{2, 6}},
		"auth":        {m{"predicate": test("isNull", "auth", nil)}, "", false, nil, nil},
		"like":        {m{"predicate": test("like", "a", "x%")}, "", false, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			list := compile(t, tc.query).Narrowings()
			if tc.attribute == "" {
				require.Empty(t, list)
				return
			}
			require.Len(t, list, 1)
			require.Equal(t, tc.attribute, list[0].Attribute)
			require.Equal(t, tc.points, list[0].Points)
			path := query.ParseAttribute("v")
			for _, v := range tc.in {
				require.True(t, contains(list[0].Spans, path.AppendRank(nil, "k", raw(t, m{"v": v}))), "%v", v)
			}
			for _, v := range tc.out {
				require.False(t, contains(list[0].Spans, path.AppendRank(nil, "k", raw(t, m{"v": v}))), "%v", v)
			}
		})
	}
}

func TestTheFilterOfPostSyncNarrows(t *testing.T) {
	q, err := query.Compile(nil, query.Options{Filter: raw(t, m{"a": 1, "b.c": 1, "_value": 1, "_key": "k", "n": nil, "l": l{}})})
	require.NoError(t, err)
	list := q.Narrowings()
	require.Len(t, list, 1, "names with dots are no paths there, pseudo attributes fields, and nil a value")
	require.Equal(t, "a", list[0].Attribute)
}

func TestSortedBy(t *testing.T) {
	for field, want := range map[string]bool{"a": true, "_value": true, "a.b": false} {
		attribute, descending, ok := compile(t, m{"sort": m{field: "desc"}}).SortedBy()
		require.Equal(t, want, ok)
		require.Equal(t, want, attribute == field && descending)
	}
	_, _, ok := compile(t, m{}).SortedBy()
	require.False(t, ok)
}

// TestNarrowingsAdmitEveryRow tries random conditions on random values: what matches lies in
// the spans of all of them.
func TestNarrowingsAdmitEveryRow(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	value := func() any { return scalars[r.IntN(len(scalars))] }
	ops := []string{"eq", "gt", "gte", "lt", "lte", "between", "in", "startsWith", "isNull", "isNotNull", "neq", "contains"}
	matches := 0
	for range 20_000 {
		var children l
		for range 1 + r.IntN(2) {
			op, want := ops[r.IntN(len(ops))], value()
			if op == "between" || op == "in" {
				want = l{value(), value()}
			}
			children = append(children, test(op, []string{"a", "b.c", "_value"}[r.IntN(3)], want))
		}
		q := compile(t, m{"predicate": m{"op": "and", "children": children}})
		record := raw(t, m{"a": value(), "b": m{"c": value()}, "_value": value()})
		if r.IntN(5) == 0 {
			record = raw(t, value())
		}
		matched, err := q.Match("k", record)
		require.NoError(t, err)
		if !matched {
			continue
		}
		matches++
		for _, n := range q.Narrowings() {
			require.True(t, contains(n.Spans, query.ParseAttribute(n.Attribute).AppendRank(nil, "k", record)), "%v: %v", children, n.Attribute)
		}
	}
	require.Greater(t, matches, 100)
}
