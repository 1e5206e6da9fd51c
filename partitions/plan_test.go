package partitions

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm/index"
)

var planIndexes = []IndexDefinition{
	{MapName: "m", Attribute: "g", Type: index.Hash}, {MapName: "m", Attribute: "n", Type: index.Navigable},
}

// TestIndexesChangeNoAnswer asks random queries of nodes that index, some of them not yet or
// not any more, and of one that never does.
func TestIndexesChangeNoAnswer(t *testing.T) {
	for name, configure := range map[string][]func(*Config){"large pages": nil, "small pages": {tiny}} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, configure...)
			compareAnswers(t, f, func(rng *rand.Rand) {
				n := f.nodes[rng.IntN(fleetSize)]
				if rng.IntN(8) == 0 {
					n.indexes.Define(planIndexes[:rng.IntN(2)])
				} else {
					n.indexes.Define(planIndexes)
				}
				n.indexes.Step()
			})
		})
	}
}

func TestPlansTellOfAllGroups(t *testing.T) {
	f := newFleet(t)
	n := f.nodes[0]
	s := n.router.NewSession()
	var ops []Op
	for i := range 240 {
		ops = append(ops, Op{Map: "m", Key: fmt.Sprintf("k%03d", i), Record: stamped(t, 1, map[string]any{"g": i % 20, "n": i})})
	}
	_, err := n.router.Write(deadline(t, 60*time.Second), s, ops)
	require.NoError(t, err)
	explain := func(q map[string]any) *Plan {
		a := ask(t, q)
		a.Explain = true
		answer, err := n.router.Answer(deadline(t, 60*time.Second), s, a)
		require.NoError(t, err)
		return &answer.Plan
	}
	where := map[string]any{"where": map[string]any{"g": 7}}
	require.Equal(t, Plan{Scanned: 6, Candidates: 240, Matched: 12}, *explain(where))
	require.Equal(t, PlanScan, explain(where).Kind())
	for _, other := range f.nodes {
		other.indexes.Define(planIndexes)
	}
	require.Equal(t, 6, explain(where).Scanned, "not built yet")
	for _, other := range f.nodes {
		for other.indexes.Step() {
		}
	}
	require.Equal(t, Plan{Index: planIndexes[0], Indexed: 6, Candidates: 12, Matched: 12}, *explain(where))
	require.Equal(t, PlanIndex, explain(where).Kind())
	first := explain(map[string]any{"sort": map[string]any{"n": "desc"}, "limit": 3})
	require.Equal(t, 6, first.Indexed)
	require.Equal(t, planIndexes[1], first.Index)
	require.Less(t, first.Candidates, 6*8, "the rest is not looked at")
	grouped := explain(map[string]any{"where": map[string]any{"g": 7}, "groupBy": []any{"n"}})
	require.Equal(t, Plan{Index: planIndexes[0], Indexed: 6, Candidates: 12, Matched: 12}, *grouped)
	keys := explain(map[string]any{"where": map[string]any{"_key": "k007"}})
	require.Equal(t, Plan{Keyed: 6, Candidates: 1, Matched: 1}, *keys)
	require.Equal(t, PlanKeys, keys.Kind())
	a := ask(t, where)
	answer, err := n.router.Answer(deadline(t, 60*time.Second), s, a)
	require.NoError(t, err)
	require.Less(t, answer.Plan.Indexed, 6, "who does not ask costs no plans of other nodes")

	stat := n.router.IndexStat(planIndexes[0])
	require.True(t, stat.Done && stat.Incomplete, "%+v", stat)
	require.Equal(t, stat.Total, stat.Entries)
	require.Equal(t, stat.Total, stat.Processed)
	require.False(t, n.router.IndexStat(IndexDefinition{MapName: "m", Attribute: "g", Type: index.Navigable}).Done, "one that the node has not begun")
}

func TestPlansAreReadBack(t *testing.T) {
	p := Plan{Index: planIndexes[1], Scanned: 1, Indexed: 2, Keyed: 3, Candidates: 400, Matched: 50}
	back, err := decodePlan(p.append(nil))
	require.NoError(t, err)
	require.Equal(t, p, back)
	for _, bad := range [][]byte{nil, {1}, append(p.append(nil), 0)} {
		_, err := decodePlan(bad)
		require.Error(t, err)
	}
}

func TestIndexDefinitionsAreAmended(t *testing.T) {
	var document []byte
	var err error
	for i := range MaxIndexes {
		document, err = WithIndex(document, IndexDefinition{MapName: "m", Attribute: fmt.Sprint("a", i), Type: index.Hash})
		require.NoError(t, err)
	}
	_, err = WithIndex(document, IndexDefinition{MapName: "m", Attribute: "a1", Type: index.Navigable})
	require.ErrorIs(t, err, ErrIndexExists)
	_, err = WithIndex(document, IndexDefinition{MapName: "x", Attribute: "a1", Type: index.Hash})
	require.ErrorIs(t, err, ErrTooManyIndexes)
	document, err = WithoutIndex(document, "m", "a1")
	require.NoError(t, err)
	list, err := Indexes(document)
	require.NoError(t, err)
	require.Len(t, list, MaxIndexes-1)
	_, err = WithoutIndex(document, "m", "a1")
	require.ErrorIs(t, err, ErrNoIndex)
	for _, change := range []func() ([]byte, error){
		func() ([]byte, error) { return WithIndex([]byte("{"), planIndexes[0]) },
		func() ([]byte, error) { return WithoutIndex([]byte("{"), "m", "g") },
	} {
		_, err := change()
		require.ErrorIs(t, err, index.ErrFormat)
	}
}
