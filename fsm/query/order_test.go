package query_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm/query"
	"github.com/quorate/quorate/protocol"
)

// sorted returns the keys of rows, which are key and value of "v", in the order of q.
func sorted(t *testing.T, q *query.Query, rows map[string]any) (keys []string) {
	t.Helper()
	var places []query.Place
	for key, v := range rows {
		value := m{"v": v}
		if v == "missing" {
			value = m{}
		}
		places = append(places, q.Place(key, raw(t, value)))
	}
	slices.SortFunc(places, func(a, b query.Place) int { return q.Compare(&a, &b) })
	for _, p := range places {
		keys = append(keys, p.Key)
	}
	return keys
}

func TestOrder(t *testing.T) {
	rows := map[string]any{
		"1no": false, "2yes": true, "3minus": -5, "4half": 0.5, "5one": 1, "5same": 1.0, "6nan": math.NaN(), "7A": "A", "8a": "a", "9list": l{1},
		"9map": m{}, "_nil": nil, "__missing": "missing",
	}
	asc := m{"sort": l{m{"field": "v", "direction": "asc"}}}
	require.Equal(t, []string{"1no", "2yes", "3minus", "4half", "5one", "5same", "6nan", "7A", "8a", "9list", "9map", "__missing", "_nil"},
		sorted(t, compile(t, asc), rows))
	desc := m{"sort": m{"v": "desc"}}
	require.Equal(t, []string{"9list", "9map", "8a", "7A", "6nan", "5one", "5same", "4half", "3minus", "2yes", "1no", "__missing", "_nil"},
		sorted(t, compile(t, desc), rows))
	require.Equal(t, "1no", sorted(t, compile(t, m{}), rows)[0])
	byKey := sorted(t, compile(t, m{"sort": m{"_key": "desc"}}), rows)
	require.Equal(t, "__missing", byKey[1], "bytes, descending")
	require.Equal(t, []string{"b", "a"}, sorted(t, compile(t, m{"sort": l{m{"field": "x", "direction": "asc"}, m{"field": "v", "direction": "desc"}}}),
		map[string]any{"a": 1, "b": 2}))
}

func TestPlacesAreReadBack(t *testing.T) {
	q := compile(t, m{"sort": l{m{"field": "a", "direction": "asc"}, m{"field": "b", "direction": "desc"}}})
	for _, value := range []any{m{"a": 1, "b": "x"}, m{"a": true}, m{"b": l{}}, m{"a": math.Inf(1), "b": false}} {
		p := q.Place("k", raw(t, value))
		back, err := q.ParsePlace(q.AppendPlace(nil, &p))
		require.NoError(t, err)
		require.Zero(t, q.Compare(&p, &back))
	}
	for _, b := range [][]byte{nil, {0xc0}, msgp.AppendString(nil, "k"), append(q.AppendPlace(nil, &query.Place{Key: "k"}), 9, 9, 9)} {
		_, err := q.ParsePlace(b)
		require.Error(t, err)
	}
}

// TestTheOrderIsTotal compares random places, of which many are equal but for the key.
func TestTheOrderIsTotal(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	values := []any{nil, true, false, 0, -1, 1, 1.5, math.NaN(), "", "a", "b", l{}, m{}}
	q := compile(t, m{"sort": l{m{"field": "a", "direction": "asc"}, m{"field": "b", "direction": "desc"}}})
	var places []query.Place
	for range 60 {
		places = append(places, q.Place(string(rune('a'+r.IntN(26))), raw(t, m{"a": values[r.IntN(len(values))], "b": values[r.IntN(len(values))]})))
	}
	for i := range places {
		for j := range places {
			ij := q.Compare(&places[i], &places[j])
			require.Equal(t, cmp.Compare(ij, 0), -cmp.Compare(q.Compare(&places[j], &places[i]), 0))
			for k := range places {
				if ij <= 0 && q.Compare(&places[j], &places[k]) <= 0 {
					require.LessOrEqual(t, q.Compare(&places[i], &places[k]), 0)
				}
			}
		}
	}
}

func TestGroups(t *testing.T) {
	q := compile(t, m{"groupBy": l{"depot", "n"}, "aggregations": l{
		m{"func": "count"}, m{"func": "sum", "field": "w"}, m{"func": "avg", "field": "w"}, m{"func": "min", "field": "w"},
		m{"func": "max", "field": "w"}, m{"func": "sum"},
	}})
	require.True(t, q.Grouped())
	groups := q.NewGroups(1 << 20)
	for _, value := range []m{
		{"depot": "north", "n": 1, "w": 4}, {"depot": "north", "n": 1, "w": 2.5}, {"depot": "north", "n": 1, "w": "heavy"},
		{"depot": "north", "n": 1.0, "w": 1}, {"depot": nil, "w": "?"}, {"w": nil}, {"depot": "", "n": 0},
	} {
		require.NoError(t, groups.Add("k", raw(t, value)))
	}
	got := map[string]map[string]any{}
	groups.Each(func(key string, value msgp.Raw) bool {
		row, _, err := msgp.ReadMapStrIntfBytes(value, nil)
		require.NoError(t, err)
		require.Equal(t, key, row["__key"])
		got[key] = row
		return true
	})
	require.Len(t, got, 4)
	require.Equal(t, map[string]any{
		"__key": "S5:northI1;", "__count": int64(3), "depot": "north", "n": int64(1),
		"__sum_w": 6.5, "__avg_w": 3.25, "__min_w": 2.5, "__max_w": int64(4),
	}, got["S5:northI1;"])
	require.Equal(t, map[string]any{
		"__key": "NN", "__count": int64(2), "depot": nil, "n": nil, "__sum_w": int64(0), "__avg_w": nil, "__min_w": nil, "__max_w": nil,
	}, got["NN"])
	require.False(t, compile(t, m{"aggregations": l{m{"func": "count"}}}).Grouped())

	small := q.NewGroups(1000)
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		err = small.Add("k", raw(t, m{"depot": i}))
	}
	require.ErrorIs(t, err, query.ErrTooManyGroups)
}

func TestAGroupHasEachFieldOnce(t *testing.T) {
	sum := m{"func": "sum", "field": "w"}
	q := compile(t, m{"groupBy": l{"a", "b", "a"}, "aggregations": l{sum, m{"func": "min", "field": "w"}, sum}})
	groups := q.NewGroups(1 << 20)
	require.NoError(t, groups.Add("k", raw(t, m{"a": 1, "b": 2, "w": 3})))
	var names []string
	groups.Each(func(_ string, value msgp.Raw) bool {
		protocol.EachField(value, func(name []byte, _ msgp.Raw) bool { names = append(names, string(name)); return true })
		return true
	})
	require.Equal(t, []string{"__key", "__count", "a", "b", "__sum_w", "__min_w"}, names)
}

// TestExtremesDependOnNoOrder: an index shows records in another order than a scan.
func TestExtremesDependOnNoOrder(t *testing.T) {
	q := compile(t, m{"groupBy": l{"g"}, "aggregations": l{m{"func": "min", "field": "w"}, m{"func": "max", "field": "w"}}})
	for _, order := range [][]any{{math.NaN(), 1, 2}, {1, math.NaN(), 2}, {2, 1, math.NaN()}} {
		groups := q.NewGroups(1 << 20)
		for _, w := range order {
			require.NoError(t, groups.Add("k", raw(t, m{"w": w})))
		}
		groups.Each(func(_ string, value msgp.Raw) bool {
			fields := protocol.Fields(value)
			require.Equal(t, []msgp.Raw{raw(t, 1), raw(t, math.NaN())}, []msgp.Raw{fields["__min_w"], fields["__max_w"]}, "%v", order)
			return true
		})
	}
}

func TestSumsOfWholeNumbersAreExact(t *testing.T) {
	q := compile(t, m{"groupBy": l{"g"}, "aggregations": l{m{"func": "sum", "field": "w"}}})
	groups := q.NewGroups(1 << 20)
	for _, w := range []any{int64(1) << 52, 1, -1, 0.25, -0.25, 1} {
		require.NoError(t, groups.Add("k", raw(t, m{"w": w})))
	}
	groups.Each(func(_ string, value msgp.Raw) bool {
		require.Equal(t, raw(t, int64(1)<<52+1), protocol.Fields(value)["__sum_w"])
		return true
	})
}
