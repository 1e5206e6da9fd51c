package index_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm/index"
	"github.com/quorate/quorate/fsm/query"
)

// value is a record whose field a has v; "" is a record without the field.
func value(t testing.TB, v any) []byte {
	fields := map[string]any{"a": v}
	if v == "" {
		fields = map[string]any{}
	}
	b, err := msgp.AppendIntf(nil, fields)
	require.NoError(t, err)
	return b
}

// spans are those of a condition on a.
func spans(t testing.TB, op string, want any) []query.Span {
	b, err := msgp.AppendIntf(nil, map[string]any{"predicate": map[string]any{"op": op, "attribute": "a", "value": want}})
	require.NoError(t, err)
	q, err := query.Compile(b, query.Options{})
	require.NoError(t, err)
	return q.Narrowings()[0].Spans
}

func keys(walk func([]query.Span, func(string) bool) bool, in ...query.Span) (list []string) {
	walk(in, func(key string) bool { list = append(list, key); return true })
	return list
}

func TestAnIndexFollowsItsRecords(t *testing.T) {
	usage := new(index.Usage)
	x := index.New(index.Definition{MapName: "m", Attribute: "a", Type: index.Navigable}, usage)
	for i, v := range []any{3, 1, "x", true, 1.0, "", []any{}} {
		x.Set(fmt.Sprint("k", i), nil, value(t, v))
		x.Set(fmt.Sprint("k", i), nil, value(t, v)) // as while it is built
	}
	require.Equal(t, 7, x.Len())
	require.EqualValues(t, 7, usage.Entries.Load())
	all := []query.Span{query.SpanValues, query.SpanMissing}
	require.Equal(t, []string{"k3", "k1", "k4", "k0", "k2", "k6", "k5"}, keys(x.View().Ascend, all...))
	require.Equal(t, []string{"k6", "k2", "k0", "k4", "k1", "k3", "k5"}, keys(x.View().Descend, all...))
	require.Equal(t, []string{"k1", "k4"}, keys(x.View().Ascend, spans(t, "eq", 1)...))
	require.Equal(t, 3, x.View().Count(spans(t, "lte", 3), 10))
	require.Equal(t, 2, x.View().Count(spans(t, "lte", 3), 1), "one more than the limit")

	before := x.View()
	x.Set("k1", value(t, 1), value(t, 9))
	x.Set("k4", value(t, 1.0), nil)
	x.Set("k9", value(t, 7), nil)
	require.Equal(t, []string{"k1", "k4"}, keys(before.Ascend, spans(t, "eq", 1)...), "a view stays as it is")
	require.Empty(t, keys(x.View().Ascend, spans(t, "eq", 1)...))
	require.Equal(t, []string{"k1"}, keys(x.View().Ascend, spans(t, "eq", 9)...))
	x.Drop()
	require.Zero(t, usage.Entries.Load())
	require.Zero(t, usage.Bytes.Load())
	require.Zero(t, x.Len())
}

func TestAHashIndexHoldsWhatOthersCanEqual(t *testing.T) {
	x := index.New(index.Definition{MapName: "m", Attribute: "a", Type: index.Hash}, new(index.Usage))
	for i, v := range []any{1, "x", false, "", []any{}, nil} {
		x.Set(fmt.Sprint("k", i), nil, value(t, v))
	}
	require.Equal(t, []string{"k2", "k0", "k1"}, keys(x.View().Ascend, query.SpanValues))
	x.Set("k0", value(t, 1), value(t, ""))
	require.Equal(t, 2, x.Len())
}

// TestViewsAreTakenBesideChanges is for the race detector.
func TestViewsAreTakenBesideChanges(t *testing.T) {
	x := index.New(index.Definition{MapName: "m", Attribute: "a", Type: index.Navigable}, new(index.Usage))
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 200 {
				if list := keys(x.View().Ascend, query.SpanValues); !slices.IsSorted(list) {
					t.Error("entries of equal values are not in the order of their keys")
				}
			}
		})
	}
	for i := range 2000 {
		x.Set(fmt.Sprintf("%04d", i), nil, value(t, 1))
	}
	readers.Wait()
	require.Equal(t, 2000, x.Len())
}

func TestDefinitionsAreReadBack(t *testing.T) {
	list := []index.Definition{{MapName: "m", Attribute: "a", Type: index.Hash}, {MapName: "m", Attribute: "b.c", Type: index.Navigable}}
	b, err := index.Encode(list)
	require.NoError(t, err)
	back, err := index.Decode(b)
	require.NoError(t, err)
	require.Equal(t, list, back)
	require.Equal(t, 1, index.Find(back, "m", "b.c"))
	require.Equal(t, -1, index.Find(back, "x", "a"))
	none, err := index.Decode(nil)
	require.NoError(t, err)
	require.Empty(t, none)
	for _, bad := range []string{"{", `{"format":2}`, `[]`, `{"format":1,"indexes":[{"mapName":"m","attribute":"a","indexType":"tree"}]}`} {
		_, err := index.Decode([]byte(bad))
		require.ErrorIs(t, err, index.ErrFormat, bad)
	}
	many := make([]index.Definition, index.MaxDefinitions+1)
	for i := range many {
		many[i] = index.Definition{MapName: "m", Attribute: fmt.Sprint(i), Type: index.Hash}
	}
	b, err = index.Encode(many)
	require.NoError(t, err)
	_, err = index.Decode(b)
	require.ErrorIs(t, err, index.ErrFormat)
}
