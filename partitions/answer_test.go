package partitions

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// object is a MsgPack value.
func object(t testing.TB, v any) msgp.Raw {
	t.Helper()
	b, err := msgp.AppendIntf(nil, v)
	require.NoError(t, err)
	return b
}

// ask is what a client that sends a query object asks for.
func ask(t testing.TB, v map[string]any) Ask {
	t.Helper()
	q, err := CompileQuery(object(t, v), QueryOptions{})
	require.NoError(t, err)
	a := Ask{Map: "m", Query: q, Rows: q.Limit(), Bytes: 1 << 20}
	if a.Rows == NoLimit {
		a.Rows = MaxQueryRows
	}
	return a
}

// stamped is a record whose value is v.
func stamped(t testing.TB, millis int64, v any) protocol.Record {
	return protocol.Record{Value: object(t, v), Timestamp: protocol.Timestamp{Millis: millis, NodeID: "c"}}
}

func keysOf(rows []Row) []string {
	keys := make([]string, len(rows))
	for i := range rows {
		keys[i] = rows[i].Key
	}
	return keys
}

func TestAnswersComeInTheirOrderWithinTheirBounds(t *testing.T) {
	r, g := newRealRouter(t)
	for i := range 30 {
		g.put(t, fmt.Sprintf("k%02d", i), stamped(t, 1, map[string]any{"n": i, "odd": i % 2}))
	}
	g.put(t, "k05", protocol.Record{Timestamp: protocol.Timestamp{Millis: 2, NodeID: "c"}}) // deleted
	expired := stamped(t, 3, map[string]any{"n": 6})
	expired.TTLMillis = 1
	g.put(t, "k06", expired)
	byN := []any{map[string]any{"field": "n", "direction": "desc"}}
	for name, tc := range map[string]struct {
		query        map[string]any
		spare, bytes int
		after        string
		rows, extra  []string
		more         bool
	}{
		"keys":       {query: map[string]any{"limit": 3}, after: "k03", rows: []string{"k04", "k07", "k08"}, more: true},
		"filter":     {query: map[string]any{"where": map[string]any{"odd": 1}, "limit": 3}, rows: []string{"k01", "k03", "k07"}, more: true},
		"last page":  {query: map[string]any{"limit": 3}, after: "k27", rows: []string{"k28", "k29"}},
		"whole page": {query: map[string]any{"limit": 2}, after: "k27", rows: []string{"k28", "k29"}},
		"sorted":     {query: map[string]any{"sort": byN, "limit": 2}, rows: []string{"k29", "k28"}, more: true},
		"spare":      {query: map[string]any{"sort": byN, "limit": 2}, spare: 3, rows: []string{"k29", "k28"}, extra: []string{"k27", "k26", "k25"}, more: true},
		"bytes":      {query: map[string]any{}, bytes: 3 * 120, rows: []string{"k00", "k01", "k02"}, more: true},
		"one fits":   {query: map[string]any{"sort": byN}, bytes: 1, rows: []string{"k29"}, more: true},
		"zero":       {query: map[string]any{"limit": 0}, rows: []string{}, more: true},
		"zero, none": {query: map[string]any{"limit": 0, "where": map[string]any{"n": 100}}, rows: []string{}},
		"key":        {query: map[string]any{"where": map[string]any{"_key": "k07"}}, rows: []string{"k07"}},
		"of keys": {query: map[string]any{"predicate": map[string]any{"op": "in", "attribute": "_key",
			"value": []any{"k20", "k05", "k06", "k1", "k02"}}, "where": map[string]any{"odd": 0}}, rows: []string{"k02", "k20"}},
	} {
		a := ask(t, tc.query)
		a.Spare, a.Bytes = tc.spare, cmp.Or(tc.bytes, a.Bytes)
		if tc.after != "" {
			place := a.Query.Place(tc.after, nil)
			a.After = &place
		}
		answer, err := r.Answer(t.Context(), r.NewSession(), a)
		require.NoError(t, err, name)
		require.Equal(t, tc.rows, keysOf(answer.Rows), name)
		require.Equal(t, tc.more, answer.More, name)
		require.Equal(t, append([]string{}, tc.extra...), keysOf(answer.Spare), name)
		require.Len(t, answer.Index, 6, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.Answer(ctx, r.NewSession(), ask(t, map[string]any{}))
	require.ErrorIs(t, err, context.Canceled)
}

func TestGroupsAreRowsOverAllRaftGroups(t *testing.T) {
	r, g := newRealRouter(t)
	for i := range 60 {
		g.put(t, fmt.Sprintf("k%02d", i), stamped(t, 1, map[string]any{"g": i % 4, "w": i}))
	}
	a := ask(t, map[string]any{
		"groupBy": []any{"g"}, "aggregations": []any{map[string]any{"func": "sum", "field": "w"}},
		"sort": []any{map[string]any{"field": "__sum_w", "direction": "desc"}}, "limit": 2,
	})
	answer, err := r.Answer(t.Context(), r.NewSession(), a)
	require.NoError(t, err)
	require.Equal(t, []string{"I3;", "I2;"}, keysOf(answer.Rows))
	require.True(t, answer.More)
	v, _, err := msgp.ReadMapStrIntfBytes(answer.Rows[0].Record.Value, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"__key": "I3;", "__count": int64(15), "g": int64(3), "__sum_w": int64(465)}, v)
	a.After = answer.Place(1)
	answer, err = r.Answer(t.Context(), r.NewSession(), a)
	require.NoError(t, err)
	require.Equal(t, []string{"I1;", "I0;"}, keysOf(answer.Rows))
	require.False(t, answer.More)
}

func TestARecordThatCostsTooMuchFailsTheAnswer(t *testing.T) {
	r, g := newRealRouter(t)
	g.put(t, "k", stamped(t, 1, map[string]any{"t": string(make([]byte, 1<<19))}))
	a := ask(t, map[string]any{"predicate": map[string]any{"op": "regex", "attribute": "t", "value": "(a|b|c|d|e){1,200}x"}})
	_, err := r.Answer(t.Context(), r.NewSession(), a)
	require.ErrorIs(t, err, ErrQueryTooCostly)
}

// TestPagesAddUpToTheWhole follows cursors through random maps in random orders.
func TestPagesAddUpToTheWhole(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	r, g := newRealRouter(t)
	for i := range 200 {
		g.put(t, fmt.Sprintf("k%d", rnd.IntN(1000)), stamped(t, int64(i), map[string]any{"a": rnd.IntN(4), "b": fmt.Sprint(rnd.IntN(3))}))
	}
	for _, sort := range []any{nil, map[string]any{"a": "desc"}, map[string]any{"b": "asc"}, map[string]any{"missing": "asc"}} {
		whole := ask(t, map[string]any{"sort": sort})
		all, err := r.Answer(t.Context(), r.NewSession(), whole)
		require.NoError(t, err)
		require.True(t, slices.IsSortedFunc(all.places, func(a, b Place) int { return whole.Query.Compare(&a, &b) }))
		var pages []string
		page := whole
		for more := true; more; {
			page.Rows = 1 + rnd.IntN(20)
			answer, err := r.Answer(t.Context(), r.NewSession(), page)
			require.NoError(t, err)
			pages, more = append(pages, keysOf(answer.Rows)...), answer.More
			page.After = answer.Place(len(answer.Rows) - 1)
		}
		require.Equal(t, keysOf(all.Rows), pages)
	}
}
