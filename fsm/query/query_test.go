package query_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm/query"
	"github.com/quorate/quorate/protocol"
)

type m = map[string]any
type l = []any

func raw(t testing.TB, v any) msgp.Raw {
	t.Helper()
	b, err := msgp.AppendIntf(nil, v)
	require.NoError(t, err)
	return b
}

func compile(t testing.TB, v any) *query.Query {
	t.Helper()
	q, err := query.Compile(raw(t, v), query.Options{})
	require.NoError(t, err)
	return q
}

// test is a predicate node with one operand.
func test(op, attribute string, value any) m {
	return m{"op": op, "attribute": attribute, "value": value}
}

func TestOperators(t *testing.T) {
	record := m{
		"int": 5, "float": 5.0, "half": 2.5, "neg": -1, "text": "Müller", "empty": "", "yes": true, "no": false, "nil": nil,
		"list": l{1, "two", 3.0, l{1}}, "none": l{}, "map": m{"a": 1, "b": m{"c": "deep"}}, "same": m{"b": m{"c": "deep"}, "a": 1.0},
		"lines": "one\ntwo", "nan": math.NaN(), "bin": []byte{1, 2}, "big": uint64(1 << 60), "digits": "٣٤", "percent": "50%_x",
		"auth": m{"user": "u"}, "a.b": 1,
	}
	for _, tc := range []struct {
		op, attribute string
		value         any
		want          bool
	}{
		{"eq", "int", 5.0, true}, {"eq", "float", 5, true}, {"eq", "int", "5", false}, {"eq", "text", "Müller", true},
		{"eq", "text", "müller", false}, {"eq", "yes", true, true}, {"eq", "yes", 1, false}, {"eq", "nil", nil, false},
		{"eq", "missing", nil, false}, {"eq", "map", m{"b": m{"c": "deep"}, "a": 1.0}, true}, {"eq", "map", m{"a": 1}, false},
		{"eq", "list", l{1.0, "two", 3, l{1}}, true}, {"eq", "list", l{"two", 1, 3, l{1}}, false}, {"eq", "nan", math.NaN(), false},
		{"eq", "bin", []byte{1, 2}, true}, {"eq", "big", int64(1 << 60), true}, {"eq", "map.b.c", "deep", true}, {"eq", "map.b.c.d", "deep", false},
		{"eq", "list.0", 1, false}, {"eq", "a.b", 1, false}, {"eq", "_key", "k1", true}, {"eq", "_value", 5, false},
		{"neq", "int", 6, true}, {"neq", "int", 5.0, false}, {"neq", "missing", 6, false}, {"neq", "nil", 6, false}, {"neq", "int", nil, false},
		{"neq", "int", "5", true},
		{"gt", "int", 4, true}, {"gt", "int", 5, false}, {"gte", "int", 5.0, true}, {"lt", "neg", 0, true}, {"lte", "half", 2.5, true},
		{"gt", "text", "Mu", true}, {"lt", "text", "Mz", false}, {"gt", "text", 1, false}, {"gt", "int", "1", false}, {"gt", "yes", false, false},
		{"gt", "nan", 1, false}, {"lte", "nan", 1, false}, {"gt", "list", l{}, false}, {"gte", "missing", 0, false}, {"lt", "nil", 1, false},
		{"between", "int", l{5, 5}, true}, {"between", "int", l{1, 4}, false}, {"between", "text", l{"A", "Z"}, true},
		{"between", "int", l{1}, false}, {"between", "int", l{1, 9, 10}, false}, {"between", "int", l{"1", "9"}, false}, {"between", "int", 5, false},
		{"in", "int", l{1, 5.0}, true}, {"in", "int", l{}, false}, {"in", "text", l{"x", "Müller"}, true}, {"in", "list", 1, true},
		{"in", "list", "two", true}, {"in", "list", 9, false}, {"in", "int", 5, false}, {"in", "list", l{l{1, "two", 3, l{1}}}, true},
		{"in", "nil", l{nil}, false}, {"in", "map", l{m{"a": 1, "b": m{"c": "deep"}}}, true}, {"in", "_key", l{"k0", "k1"}, true},
		{"containsAll", "list", l{1, "two"}, true}, {"containsAll", "list", l{1, 2}, false}, {"containsAll", "list", l{}, true},
		{"containsAll", "list", 3, true}, {"containsAll", "int", l{}, false}, {"containsAll", "text", l{"MÜL", "ler"}, true},
		{"containsAll", "text", l{"mül", "x"}, false}, {"containsAll", "text", l{}, true},
		{"containsAny", "list", l{9, "two"}, true}, {"containsAny", "list", l{}, false}, {"containsAny", "list", l{9}, false},
		{"containsAny", "text", l{"x", "LER"}, true}, {"containsAny", "text", l{1}, false}, {"containsAny", "none", l{1}, false},
		{"contains", "text", "ÜLL", true}, {"contains", "text", "x", false}, {"contains", "list", 1.0, true}, {"contains", "list", l{1}, true},
		{"contains", "int", 5, false}, {"contains", "text", 5, false},
		{"startsWith", "text", "Mü", true}, {"startsWith", "text", "mü", false}, {"startsWith", "int", "5", false}, {"startsWith", "text", "", true},
		{"endsWith", "text", "ller", true}, {"endsWith", "text", "LLER", false}, {"endsWith", "text", 1, false},
		{"like", "text", "mÜ%", true}, {"like", "text", "M_ller", true}, {"like", "text", "M_er", false}, {"like", "text", "ller", false},
		{"like", "lines", "one%", false}, {"like", "lines", "one_two", false}, {"like", "lines", "one\ntwo", true}, {"like", "empty", "%", true},
		{"like", "empty", "_", false}, {"like", "percent", `50%\_x`, false}, {"like", "percent", "50%", true}, {"like", "text", "M.ller", false},
		{"like", "int", "%", false}, {"like", "text", 1, false},
		{"regex", "text", "ü", true}, {"regex", "text", "^ü", false}, {"regex", "text", "(?i)^MÜLLER$", true}, {"regex", "text", "MÜLLER", false},
		{"regex", "text", "(", false}, {"regex", "text", "(a)\\1", false}, {"regex", "text", "^\\w+$", true}, {"regex", "digits", "^\\d{2}$", true},
		{"regex", "digits", "^[\\d]+$", true}, {"regex", "text", "\\W", false}, {"regex", "text", "^[^\\s\\D]+$", false}, {"regex", "lines", "\\s", true},
		{"regex", "text", "^[[:alpha:]ü]+$", true}, {"regex", "text", "\\QM\\E", true}, {"regex", "int", "5", false},
		{"regex", "text", "^[^^]\\w+$", true}, {"regex", "text", "^[^]]\\w+$", true},
		{"isNull", "missing", nil, true}, {"isNull", "nil", nil, true}, {"isNull", "int.x", nil, true}, {"isNull", "empty", nil, false},
		{"isNotNull", "empty", nil, true}, {"isNotNull", "nil", nil, false}, {"isNotNull", "", nil, false}, {"isNull", "", nil, false},
		{"isNull", "auth", nil, true}, {"isNotNull", "auth.user", nil, false}, {"eq", "auth.user", "u", true}, {"isNull", "_key", nil, false},
	} {
		q := compile(t, m{"predicate": test(tc.op, tc.attribute, tc.value)})
		got, err := q.Match("k1", raw(t, record))
		require.NoError(t, err)
		require.Equal(t, tc.want, got, "%s %s %v", tc.op, tc.attribute, tc.value)
	}
}

func TestLogic(t *testing.T) {
	yes, no := test("eq", "a", 1), test("eq", "a", 2)
	for name, tc := range map[string]struct {
		query any
		want  bool
	}{
		"nothing":             {m{}, true},
		"empty where":         {m{"where": m{}}, true},
		"where":               {m{"where": m{"a": 1.0, "b.c": "x"}}, true},
		"where fails":         {m{"where": m{"a": 1, "b.c": "y"}}, false},
		"where nil":           {m{"where": m{"missing": nil}}, false},
		"where explicit nil":  {m{"where": m{"n": nil}}, false},
		"where no operators":  {m{"where": m{"a": m{"$gt": 0}}}, false},
		"where key":           {m{"where": m{"_key": "k"}}, true},
		"where and predicate": {m{"where": m{"a": 1}, "predicate": no}, false},
		"predicate and where": {m{"where": m{"a": 2}, "predicate": yes}, false},
		"and":                 {m{"predicate": m{"op": "and", "children": l{yes, yes}}}, true},
		"and one no":          {m{"predicate": m{"op": "and", "children": l{yes, no}}}, false},
		"and none":            {m{"predicate": m{"op": "and"}}, true},
		"or":                  {m{"predicate": m{"op": "or", "children": l{no, yes}}}, true},
		"or none":             {m{"predicate": m{"op": "or", "children": l{}}}, false},
		"not":                 {m{"predicate": m{"op": "not", "children": l{no, yes}}}, true},
		"not of yes":          {m{"predicate": m{"op": "not", "children": l{yes}}}, false},
		"not none":            {m{"predicate": m{"op": "not"}}, true},
		"not of missing":      {m{"predicate": m{"op": "not", "children": l{test("eq", "missing", 1)}}}, true},
		"no attribute":        {m{"predicate": m{"op": "eq", "value": 1}}, false},
		"ref":                 {m{"predicate": m{"op": "eq", "attribute": "a", "valueRef": "data.one"}}, true},
		"ref wins":            {m{"predicate": m{"op": "eq", "attribute": "a", "value": 1, "valueRef": "data.two"}}, false},
		"ref path":            {m{"predicate": m{"op": "lt", "attribute": "a", "valueRef": "data.b.d"}}, true},
		"ref missing":         {m{"predicate": m{"op": "neq", "attribute": "a", "valueRef": "data.nowhere"}}, false},
		"ref identity":        {m{"predicate": m{"op": "neq", "attribute": "a", "valueRef": "auth.id"}}, false},
		"ref unknown":         {m{"predicate": m{"op": "neq", "attribute": "a", "valueRef": "env.id"}}, false},
		"ref whole":           {m{"predicate": m{"op": "neq", "attribute": "a", "valueRef": "data"}}, true},
		"ref pattern":         {m{"predicate": m{"op": "like", "attribute": "b.c", "valueRef": "data.any"}}, true},
		"nil predicate":       {m{"predicate": nil, "where": nil}, true},
	} {
		q := compile(t, tc.query)
		value := m{"a": 1, "one": 1.0, "two": 2, "n": nil, "any": "%", "b": m{"c": "x", "d": 7}}
		got, err := q.Match("k", raw(t, value))
		require.NoError(t, err)
		require.Equal(t, tc.want, got, name)
	}
}

func TestScalarRecordsAreReadAsValue(t *testing.T) {
	q := compile(t, m{"predicate": test("gt", "_value", 3)})
	for value, want := range map[any]bool{4: true, 3: false, "x": false, nil: false} {
		got, err := q.Match("k", raw(t, value))
		require.NoError(t, err)
		require.Equal(t, want, got, value)
	}
	stored, err := q.Match("k", raw(t, m{"_value": 9}))
	require.NoError(t, err)
	require.True(t, stored, "a stored field of that name is one")
}

func TestTheFilterOfHTTPIsLiteral(t *testing.T) {
	q, err := query.Compile(nil, query.Options{Filter: raw(t, m{"a.b": 1, "n": nil})})
	require.NoError(t, err)
	for _, tc := range []struct {
		value m
		want  bool
	}{{m{"a.b": 1.0, "n": nil}, true}, {m{"a.b": 1}, false}, {m{"a": m{"b": 1}, "n": nil}, false}} {
		got, err := q.Match("k", raw(t, tc.value))
		require.NoError(t, err)
		require.Equal(t, tc.want, got, tc.value)
	}
}

func TestMalformedQueries(t *testing.T) {
	deep := test("eq", "a", 1)
	for range 100 {
		deep = m{"op": "not", "children": l{deep}}
	}
	many := make(l, 10_000)
	for i := range many {
		many[i] = test("eq", "a", i)
	}
	classes := "[" + strings.Repeat(`\PL`, 1200) + "]"
	for name, tc := range map[string]struct {
		query any
		class error
	}{
		"not a map":       {l{}, query.ErrMalformed},
		"where":           {m{"where": 1}, query.ErrMalformed},
		"predicate":       {m{"predicate": "x"}, query.ErrMalformed},
		"no op":           {m{"predicate": m{}}, query.ErrMalformed},
		"unknown op":      {m{"predicate": m{"op": "EQ"}}, query.ErrMalformed},
		"unknown op deep": {m{"predicate": m{"op": "not", "children": l{m{"op": "and"}, m{"op": "?"}}}}, query.ErrMalformed},
		"children":        {m{"predicate": m{"op": "and", "children": 1}}, query.ErrMalformed},
		"attribute":       {m{"predicate": m{"op": "eq", "attribute": 1}}, query.ErrMalformed},
		"full text":       {m{"predicate": m{"op": "match", "attribute": "a"}}, query.ErrUnsupported},
		"limit":           {m{"limit": -1}, query.ErrMalformed},
		"fraction":        {m{"limit": 1.5}, query.ErrMalformed},
		"large":           {m{"limit": 4294967296.0}, query.ErrMalformed},
		"text limit":      {m{"limit": "1"}, query.ErrMalformed},
		"sort":            {m{"sort": 1}, query.ErrMalformed},
		"sort field":      {m{"sort": l{m{"direction": "asc"}}}, query.ErrMalformed},
		"direction":       {m{"sort": l{m{"field": "a", "direction": "ASC"}}}, query.ErrMalformed},
		"cursor":          {m{"cursor": 1}, query.ErrMalformed},
		"fields":          {m{"fields": l{1}}, query.ErrMalformed},
		"group":           {m{"groupBy": "a"}, query.ErrMalformed},
		"func":            {m{"groupBy": l{"a"}, "aggregations": l{m{"func": "median", "field": "a"}}}, query.ErrMalformed},
		"depth bomb":      {m{"predicate": deep}, query.ErrTooComplex},
		"10,000 clauses":  {m{"predicate": m{"op": "or", "children": many}}, query.ErrTooComplex},
		"bytes":           {m{"where": m{"a": strings.Repeat("x", 1<<20)}}, query.ErrTooComplex},
		"operands":        {m{"predicate": test("in", "a", make(l, 20_000))}, query.ErrTooComplex},
		"pattern":         {m{"predicate": test("like", "a", strings.Repeat("a%", 4000))}, query.ErrTooComplex},
		"program":         {m{"predicate": test("regex", "a", strings.Repeat("(x{900})", 100))}, query.ErrTooComplex},
		"folded ranges":   {m{"predicate": test("regex", "a", "(?i)["+strings.Repeat("B-\U0001F000", 20)+"]")}, query.ErrTooComplex},
		"folded escapes":  {m{"predicate": test("regex", "a", "(?s)(?mi:["+strings.Repeat(`B-\x{1F000}`, 20)+"])")}, query.ErrTooComplex},
		"classes":         {m{"predicate": m{"op": "or", "children": l{test("regex", "a", classes), test("regex", "a", classes)}}}, query.ErrTooComplex},
		"cased ranges":    {m{"predicate": test("regex", "a", "(?i)["+strings.Repeat("а-яa-z0-9", 40)+"]")}, nil},
		"repeats":         {m{"predicate": test("regex", "a", "((a{100}){100}){100}")}, nil},
		"columns":         {m{"sort": repeated(100)}, query.ErrTooComplex},
	} {
		_, err := query.Compile(raw(t, tc.query), query.Options{})
		require.True(t, errors.Is(err, tc.class), "%s: %v", name, err)
	}
}

func TestAPatternThatIsTooLargeIsNotWrittenOut(t *testing.T) {
	object := raw(t, m{"predicate": test("regex", "a", strings.Repeat("("+strings.Repeat("x", 1000)+"){1000}", 3))})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := query.Compile(object, query.Options{})
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, query.ErrTooComplex)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "three million instructions")
}

func repeated(n int) (sort l) {
	for range n {
		sort = append(sort, m{"field": "a", "direction": "asc"})
	}
	return sort
}

func TestLimits(t *testing.T) {
	for value, want := range map[any]int{0: 0, 7: 7, 7.0: 7, 10_000: 10_000, 10_001: 10_000, 4294967295.0: 10_000} {
		require.Equal(t, want, compile(t, m{"limit": value}).Limit())
	}
	require.Equal(t, query.NoLimit, compile(t, m{}).Limit())
}

// TestOneRecordCostsABoundedNumberOfSteps has records and queries that would take long.
func TestOneRecordCostsABoundedNumberOfSteps(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	wide := m{}
	for i := range 30_000 {
		wide[fmt.Sprint("f", i)] = i
	}
	var refs l
	for i := range 1000 {
		refs = append(refs, m{"op": "regex", "attribute": "t", "valueRef": "data.p"}, test("eq", fmt.Sprint("f", i, ".x"), 1))
	}
	for name, tc := range map[string]struct{ query, value any }{
		"regex on a long text": {m{"predicate": test("regex", "t", "(a|a?)+(b|c|d|e|f|g){1,40}$")}, m{"t": long}},
		"like on a long text":  {m{"predicate": test("like", "t", strings.Repeat("%a", 200)+"b")}, m{"t": long}},
		"patterns of records":  {m{"predicate": m{"op": "or", "children": refs[:1000]}}, m{"t": "b", "p": "a+"}},
		"pattern of classes":   {m{"predicate": refs[0]}, m{"t": "b", "p": "[" + strings.Repeat(`\w`, 300) + "]"}},
		"patterns that fold":   {m{"predicate": m{"op": "or", "children": refs[:4]}}, m{"t": "!", "p": "(?i)[B-\U0001F000]"}},
		"pattern too large":    {m{"predicate": refs[0]}, m{"t": "b", "p": strings.Repeat("x", 5000)}},
	} {
		_, err := compile(t, tc.query).Match("k", raw(t, tc.value))
		require.ErrorIs(t, err, query.ErrTooCostly, name)
	}
	// A wide record is indexed once.
	got, err := compile(t, m{"predicate": m{"op": "or", "children": evens(refs)}}).Match("k", raw(t, wide))
	require.NoError(t, err)
	require.False(t, got)
	got, err = compile(t, m{"predicate": test("regex", "t", "^a+$")}).Match("k", raw(t, m{"t": long[:1<<18]}))
	require.NoError(t, err)
	require.True(t, got)
}

// TestAWideRecordHasTheSameFieldsHoweverOftenItIsLookedAt: the first look passes over the
// fields, later ones take them from an index.
func TestAWideRecordHasTheSameFieldsHoweverOftenItIsLookedAt(t *testing.T) {
	wide := msgp.AppendMapHeader(nil, 42)
	for i := range 40 {
		wide = msgp.AppendInt(msgp.AppendString(wide, fmt.Sprint("f", i)), i)
	}
	wide = msgp.AppendInt(append(wide, 7), 1) // keys that are no text, or no valid one
	wide = msgp.AppendInt(msgp.AppendString(wide, "a\xff"), 1)
	for _, name := range []string{"7", "a\xff", "a\ufffd", "f39"} {
		once := test("eq", name, 1)
		first, err := compile(t, m{"predicate": once}).Match("k", wide)
		require.NoError(t, err)
		later, err := compile(t, m{"predicate": m{"op": "or", "children": l{test("eq", "f0", 9), test("eq", "f1", 9), once}}}).Match("k", wide)
		require.NoError(t, err)
		require.Equal(t, first, later, "%q", name)
	}
}

func evens(list l) (out l) {
	for i := 1; i < len(list); i += 2 {
		out = append(out, list[i])
	}
	return out[:400]
}

func TestProjection(t *testing.T) {
	q := compile(t, m{"fields": l{"b", "missing", "_key"}})
	require.Equal(t, map[string]msgp.Raw{"b": raw(t, 2), "_key": raw(t, "kept")},
		protocol.Fields(q.Project(raw(t, m{"a": 1, "b": 2, "_key": "kept"}))))
	require.Equal(t, raw(t, l{1}), q.Project(raw(t, l{1})))
	require.Nil(t, q.Project(nil))
	_, err := protocol.Guard(q.Project(raw(t, m{"a": 1})))
	require.NoError(t, err)
	all := raw(t, m{"a": 1})
	require.Equal(t, all, compile(t, m{"fields": l{}}).Project(all))
	q, err = query.Compile(raw(t, m{"fields": l{"a"}}), query.Options{Fields: []string{"b"}})
	require.NoError(t, err)
	require.Len(t, protocol.Fields(q.Project(raw(t, m{"a": 1, "b": 2}))), 1)
}

func TestInterest(t *testing.T) {
	for name, tc := range map[string]struct {
		query     any
		attribute string
		values    int
	}{
		"where":       {m{"where": m{"a.b": 1}}, "a.b", 1},
		"least":       {m{"where": m{"a": 1}, "predicate": test("in", "b", l{1, 2})}, "a", 1},
		"in":          {m{"predicate": test("in", "b", l{1, 1.0, "x"})}, "b", 2},
		"and":         {m{"predicate": m{"op": "and", "children": l{test("gt", "x", 1), test("eq", "c", true)}}}, "c", 1},
		"or":          {m{"predicate": m{"op": "or", "children": l{test("eq", "c", true)}}}, "", 0},
		"ref":         {m{"predicate": m{"op": "eq", "attribute": "a", "valueRef": "data.b"}}, "", 0},
		"structure":   {m{"where": m{"a": l{1}}}, "", 0},
		"many values": {m{"predicate": test("in", "b", make(l, 100))}, "", 0},
	} {
		i := compile(t, tc.query).Interest()
		require.Equal(t, tc.attribute, i.Attribute, name)
		require.Len(t, i.Values, tc.values, name)
	}
	i := compile(t, m{"where": m{"a.b": 1}}).Interest()
	got, ok := query.ParseAttribute("a.b").ValueName(nil, "k", raw(t, m{"a": m{"b": 1.0}}))
	require.True(t, ok)
	require.Equal(t, i.Values[0], string(got))
	_, ok = query.ParseAttribute("a.b").ValueName(nil, "k", raw(t, m{"a": 1}))
	require.False(t, ok)
	keys, only := compile(t, m{"predicate": test("in", "_key", l{"b", "a", "b", 1})}).Keys()
	require.True(t, only)
	require.Equal(t, []string{"a", "b"}, keys)
	_, only = compile(t, m{"where": m{"a": 1}}).Keys()
	require.False(t, only)
}

func TestShape(t *testing.T) {
	base := compile(t, m{"where": m{"a": 1, "b": 2}, "sort": l{m{"field": "a", "direction": "asc"}}, "limit": 3})
	same := compile(t, m{"where": m{"b": 2.0, "a": 1.0}, "sort": l{m{"field": "a", "direction": "asc"}}, "limit": 9, "fields": l{"a"}})
	require.Equal(t, base.Shape(), same.Shape())
	for _, other := range []any{
		m{"where": m{"a": 1, "b": 3}, "sort": l{m{"field": "a", "direction": "asc"}}},
		m{"where": m{"a": 1, "b": 2}, "sort": l{m{"field": "a", "direction": "desc"}}},
		m{"where": m{"a": 1, "b": 2}},
	} {
		require.NotEqual(t, base.Shape(), compile(t, other).Shape())
	}
}
