package httpsync

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

func numbers(t *testing.T, r protocol.HTTPQueryResult) (list []int) {
	t.Helper()
	for _, value := range r.Results {
		n, _, err := msgp.ReadIntBytes(protocol.Fields(value)["n"])
		require.NoError(t, err)
		list = append(list, n)
	}
	return list
}

func ref[T any](v T) *T { return &v }

func TestQueries(t *testing.T) {
	odd := msgp.AppendBool(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "odd"), true)
	three := msgp.AppendFloat64(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "n"), 3)
	missing := msgp.AppendNil(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "x"))
	for name, c := range map[string]struct {
		query protocol.HTTPQuery
		want  []int
		more  *bool
	}{
		"all":              {protocol.HTTPQuery{}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, nil},
		"filter":           {protocol.HTTPQuery{Filter: odd}, []int{1, 3, 5, 7, 9}, nil},
		"number as float":  {protocol.HTTPQuery{Filter: three}, []int{3}, nil},
		"field not there":  {protocol.HTTPQuery{Filter: missing}, nil, nil},
		"not a condition":  {protocol.HTTPQuery{Filter: []byte{5}, Limit: ref(int64(1))}, []int{0}, ref(true)},
		"limit and offset": {protocol.HTTPQuery{Limit: ref(int64(3)), Offset: 8}, []int{8, 9}, ref(false)},
		"offset beyond":    {protocol.HTTPQuery{Limit: ref(int64(3)), Offset: 80}, nil, ref(false)},
		"limit 0":          {protocol.HTTPQuery{Limit: ref(int64(0))}, nil, ref(true)},
	} {
		c.query.QueryID, c.query.MapName = "q", "m"
		answer := sync(t, table(), &protocol.HTTPSync{Queries: []protocol.HTTPQuery{c.query}})
		require.Len(t, answer.QueryResults, 1, name)
		require.Equal(t, c.want, numbers(t, answer.QueryResults[0]), name)
		require.Equal(t, c.more, answer.QueryResults[0].HasMore, name)
	}
}

func TestCursorsGoThroughAllRows(t *testing.T) {
	q := protocol.HTTPQuery{QueryID: "q", MapName: "m", Limit: ref(int64(3))}
	var got []int
	for {
		result := sync(t, table(), &protocol.HTTPSync{Queries: []protocol.HTTPQuery{q}}).QueryResults[0]
		got = append(got, numbers(t, result)...)
		if result.NextCursor == "" {
			require.False(t, *result.HasMore)
			break
		}
		require.True(t, *result.HasMore)
		q.Cursor = result.NextCursor
	}
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, got)
}

// object is a MsgPack value.
func object(t *testing.T, v any) msgp.Raw {
	t.Helper()
	b, err := msgp.AppendIntf(nil, v)
	require.NoError(t, err)
	return b
}

func TestQueryObjects(t *testing.T) {
	type m = map[string]any
	odd := object(t, m{"odd": true})
	for name, c := range map[string]struct {
		query protocol.HTTPQuery
		want  []int
		more  *bool
	}{
		"order":         {protocol.HTTPQuery{Query: object(t, m{"sort": m{"n": "desc"}, "limit": 3})}, []int{9, 8, 7}, ref(true)},
		"predicate":     {protocol.HTTPQuery{Query: object(t, m{"predicate": m{"op": "gt", "attribute": "n", "value": 6}})}, []int{7, 8, 9}, nil},
		"and filter":    {protocol.HTTPQuery{Query: object(t, m{"where": m{"n": 3}}), Filter: odd}, []int{3}, nil},
		"outer limit":   {protocol.HTTPQuery{Query: object(t, m{"limit": 9}), Limit: ref(int64(1))}, []int{0}, ref(true)},
		"inner, offset": {protocol.HTTPQuery{Query: object(t, m{"limit": 2, "sort": m{"n": "desc"}}), Offset: 8}, []int{1, 0}, ref(false)},
		"nil":           {protocol.HTTPQuery{Query: object(t, nil), Filter: odd}, []int{1, 3, 5, 7, 9}, nil},
	} {
		c.query.QueryID, c.query.MapName, c.query.Keys = "q", "m", true
		answer := sync(t, table(), &protocol.HTTPSync{Queries: []protocol.HTTPQuery{c.query}})
		require.Empty(t, answer.Errors, name)
		result := answer.QueryResults[0]
		require.Equal(t, c.want, numbers(t, result), name)
		require.Equal(t, c.more, result.HasMore, name)
		for i, n := range c.want {
			require.Equal(t, fmt.Sprint("k", n), result.Keys[i])
		}
	}
	fields := protocol.HTTPQuery{QueryID: "q", MapName: "m", Query: object(t, m{"fields": []any{"odd"}, "limit": 1})}
	result := sync(t, table(), &protocol.HTTPSync{Queries: []protocol.HTTPQuery{fields}}).QueryResults[0]
	require.Equal(t, object(t, m{"odd": false})[1:], result.Results[0][3:], "the other field is cut out")
	require.Nil(t, result.Keys)
	groups := protocol.HTTPQuery{QueryID: "q", MapName: "m", Query: object(t, m{"groupBy": []any{"odd"}, "sort": m{"odd": "desc"}})}
	result = sync(t, table(), &protocol.HTTPSync{Queries: []protocol.HTTPQuery{groups}}).QueryResults[0]
	require.Len(t, result.Results, 2)
	require.Equal(t, object(t, 5), protocol.Fields(result.Results[0])["__count"])
}

func TestCursorsFollowAnyOrder(t *testing.T) {
	q := protocol.HTTPQuery{QueryID: "q", MapName: "m", Limit: ref(int64(3)), Query: object(t, map[string]any{"sort": []any{
		map[string]any{"field": "odd", "direction": "desc"}, map[string]any{"field": "n", "direction": "asc"}}})}
	var got []int
	for more := true; more; {
		result := sync(t, table(), &protocol.HTTPSync{Queries: []protocol.HTTPQuery{q}}).QueryResults[0]
		got = append(got, numbers(t, result)...)
		more, q.Cursor = *result.HasMore, result.NextCursor
	}
	require.Equal(t, []int{1, 3, 5, 7, 9, 0, 2, 4, 6, 8}, got)
}

func TestBadQueriesAreErrorsById(t *testing.T) {
	first := sync(t, table(), &protocol.HTTPSync{Queries: []protocol.HTTPQuery{{QueryID: "q", MapName: "m", Limit: ref(int64(1))}}})
	cursor := first.QueryResults[0].NextCursor
	later := func(_ *Config, d *Deps) { d.Now = func() int64 { return testNow + 10*time.Minute.Milliseconds() + 1 } }
	for name, c := range map[string]struct {
		query  protocol.HTTPQuery
		change func(*Config, *Deps)
		code   protocol.Code
	}{
		"garbage":           {protocol.HTTPQuery{MapName: "m", Cursor: "?"}, func(*Config, *Deps) {}, 400},
		"short":             {protocol.HTTPQuery{MapName: "m", Cursor: "AAAA"}, func(*Config, *Deps) {}, 400},
		"of another query":  {protocol.HTTPQuery{MapName: "other", Cursor: cursor}, func(*Config, *Deps) {}, 400},
		"expired":           {protocol.HTTPQuery{MapName: "m", Cursor: cursor}, later, 400},
		"offset too great":  {protocol.HTTPQuery{MapName: "m", Offset: 10_001}, func(*Config, *Deps) {}, 400},
		"reserved map":      {protocol.HTTPQuery{MapName: "$sys/members"}, func(*Config, *Deps) {}, 403},
		"empty name of map": {protocol.HTTPQuery{}, func(*Config, *Deps) {}, 400},
		"secret changed":    {protocol.HTTPQuery{MapName: "m", Cursor: cursor}, func(_ *Config, d *Deps) { d.Secret = []byte("s") }, 400},
		"malformed":         {protocol.HTTPQuery{MapName: "m", Query: object(t, map[string]any{"limit": -1})}, func(*Config, *Deps) {}, 400},
		"not a map":         {protocol.HTTPQuery{MapName: "m", Query: object(t, 1)}, func(*Config, *Deps) {}, 400},
		"full text":         {protocol.HTTPQuery{MapName: "m", Query: object(t, map[string]any{"predicate": map[string]any{"op": "match"}})}, func(*Config, *Deps) {}, 501},
		"too many groups": {protocol.HTTPQuery{MapName: "m", Query: object(t, map[string]any{"groupBy": []any{"n"}})},
			func(c *Config, _ *Deps) { c.MaxResultBytes = 300 }, 413},
	} {
		c.query.QueryID = "q"
		answer := sync(t, table(), &protocol.HTTPSync{Queries: []protocol.HTTPQuery{c.query}}, c.change)
		require.Empty(t, answer.QueryResults, name)
		require.Len(t, answer.Errors, 1, name)
		require.Equal(t, c.code, answer.Errors[0].Code, name)
		require.Equal(t, "q", answer.Errors[0].Context, name)
	}
}
