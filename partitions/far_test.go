package partitions

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/partitions/remote"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// tiny makes pages of a few records, so that every read takes many.
func tiny(c *Config) {
	c.Remote.PageBytes, c.Remote.AnswerBytes = 200, 300
}

// unforgiving never forgives a holder that did not answer.
func unforgiving(c *Config) {
	c.Remote.TryTimeout, c.Remote.Forgive = 2*time.Second, time.Hour
}

func (n *fleetNode) rows(t *testing.T) []string {
	t.Helper()
	answer, err := n.router.Answer(deadline(t, 30*time.Second), n.router.NewSession(), ask(t, map[string]any{}))
	require.NoError(t, err)
	require.Len(t, answer.Index, 6)
	return keysOf(answer.Rows)
}

func kays(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("k%04d", i))
	}
	return list
}

func TestEveryNodeAnswersForGroupsThatItDoesNotHold(t *testing.T) {
	for name, configure := range map[string][]func(*Config){"large pages": nil, "small pages": {tiny}} {
		t.Run(name, func(t *testing.T) { readEverywhere(t, newFleet(t, configure...)) })
	}
}

func readEverywhere(t *testing.T, f *fleet) {
	ctx := deadline(t, 120*time.Second)
	const records = 150
	for i, n := range f.nodes {
		n.put(n.router.NewSession(), i*records/fleetSize, (i+1)*records/fleetSize, int64(i+1))
	}
	var sets []Op
	for i := range 30 {
		rec := protocol.ORRecord{Tag: fmt.Sprintf("100:%d:w", i), Value: []byte{1}, Timestamp: protocol.Timestamp{Millis: 100, Counter: int64(i), NodeID: "w"}}
		sets = append(sets, Op{Map: "s", Key: fmt.Sprint("s", i), Add: &rec})
	}
	sets = append(sets, Op{Map: "s", Key: "s7", Remove: "100:7:w"})
	_, err := f.nodes[0].router.Write(ctx, f.nodes[0].router.NewSession(), sets)
	require.NoError(t, err)
	var removals []Op
	const removed = fsm.MaxTags + 10
	for i := range removed {
		removals = append(removals, Op{Map: "s", Key: "many", Remove: fmt.Sprintf("200:%d:w", i)})
	}
	_, err = f.nodes[0].router.Write(ctx, f.nodes[0].router.NewSession(), removals)
	require.NoError(t, err)
	for i := range 6 {
		state := protocol.CounterState{Positive: map[string]float64{"w": float64(i + 1)}, Negative: map[string]float64{"v": 1}}
		_, _, err := f.nodes[1].router.MergeCounter(ctx, f.nodes[1].router.NewSession(), fmt.Sprint("c", i), state)
		require.NoError(t, err)
	}
	f.collect(t)

	var roots, setRoots []uint32
	for _, n := range f.nodes {
		r, s := n.router, n.router.NewSession()
		require.Equal(t, kays(records), n.rows(t), n.name)
		tree, err := r.Tree(ctx, s, "m", merkle.Records)
		require.NoError(t, err)
		setTree, err := r.Tree(ctx, s, "s", merkle.Sets)
		require.NoError(t, err)
		roots, setRoots = append(roots, tree.Root()), append(setRoots, setTree.Root())
		require.Len(t, n.leaves(t, "m"), records)
		require.Equal(t, kays(records), n.deltas(t, "m", 700))
		lacked, _ := n.lacks()
		require.NotZero(t, r.deps.Hub.Shown(lacked), "what was read elsewhere was shown, too")
		keys := []string{"s3", "none", "s7", "s1"}
		entries, err := r.Sets(ctx, s, "s", keys, 1<<20)
		require.NoError(t, err)
		for i, e := range entries {
			require.Equal(t, keys[i], e.Key)
			require.Equal(t, e.Key == "s3" || e.Key == "s1", len(e.Records) == 1, "%+v", e)
			require.Equal(t, e.Key == "s7", len(e.Tombstones) == 1)
		}
		entries, err = r.Sets(ctx, s, "s", []string{"many", "s3", "many"}, 1<<20)
		require.NoError(t, err)
		require.Len(t, entries[0].Tombstones, removed)
		require.Equal(t, entries[0], entries[2])
		require.Len(t, entries[1].Records, 1)
		require.Len(t, n.removedTags(t, "s", "many"), removed)
		_, err = r.Sets(ctx, s, "s", keys, 100)
		require.ErrorIs(t, err, ErrTooMuch)
		require.Equal(t, []string{"9999999:1:w"}, r.UnknownRemovals("s", []string{"100:7:w", "9999999:1:w"}))
		for i := range 6 {
			state, err := r.Counter(ctx, s, fmt.Sprint("c", i))
			require.NoError(t, err)
			require.Equal(t, protocol.CounterState{Positive: map[string]float64{"w": float64(i + 1)}, Negative: map[string]float64{"v": 1}}, state)
		}
		require.Equal(t, Horizon{PrunedMillis: 5000, Epoch: fakeNow / 1000}, horizonOf(t, r), n.name)
	}
	require.Len(t, slices.Compact(roots), 1)
	require.Len(t, slices.Compact(setRoots), 1)
	require.NotZero(t, roots[0])
	require.NotZero(t, setRoots[0])
}

// collect closes the time before second 5 in every group.
func (f *fleet) collect(t *testing.T) {
	for g, p := range f.cluster().Table.Groups {
		_, err := f.node(p.Leader).Propose(uint32(g)+1, []command.Raw{command.EncodeCollect(command.Collect{ThroughMillis: 5000})})
		require.NoError(t, err)
	}
}

// removedTags reads the removed tags of a key from its leaf, part by part.
func (n *fleetNode) removedTags(t *testing.T, mapName, key string) map[string]bool {
	ctx, s, tags := deadline(t, 60*time.Second), n.router.NewSession(), map[string]bool{}
	for at, end := (LeafPlace{}), false; !end; {
		var err error
		at, end, err = n.router.LeafSets(ctx, s, mapName, merkle.BucketOf(key), at, func(part protocol.OREntry) bool {
			require.LessOrEqual(t, len(part.Tombstones), fsm.MaxTags)
			for _, tag := range part.Tombstones {
				tags[tag] = part.Key == key
			}
			return false
		})
		require.NoError(t, err)
	}
	return tags
}

// leaves reads a map bucket by bucket, taking a few records at a time.
func (n *fleetNode) leaves(t *testing.T, mapName string) map[string]bool {
	ctx, s := deadline(t, 60*time.Second), n.router.NewSession()
	have := map[string]bool{}
	for i := range 150 {
		at, end := LeafPlace{}, false
		for !end {
			took := 0
			var err error
			at, end, err = n.router.LeafRecords(ctx, s, mapName, merkle.BucketOf(fmt.Sprintf("k%04d", i)), at, func(key string, _ protocol.Record) bool {
				have[key] = true
				took++
				return took < 2
			})
			require.NoError(t, err)
		}
	}
	return have
}

// deltas follows a map by deltas of a size until there are no more.
func (n *fleetNode) deltas(t *testing.T, mapName string, maxBytes int) []string {
	var since protocol.Timestamp
	have := map[string]bool{}
	for more := true; more; {
		var records []protocol.KeyedRecord
		var err error
		records, since, more, err = n.router.Delta(deadline(t, 60*time.Second), n.router.NewSession(), mapName, since, maxBytes)
		require.NoError(t, err)
		for _, kr := range records {
			have[kr.Key] = true
		}
	}
	return slices.Sorted(maps.Keys(have))
}

func TestASessionReadsWhatItWroteAlsoFromAHolderThatLags(t *testing.T) {
	f := newFleet(t, unforgiving)
	n := f.nodes[0]
	group, holders := n.lacks()
	// All holders but the leader stand still.
	for _, h := range holders[1:] {
		h.stand(true)
	}
	key := keyOfGroup(group)
	s := n.router.NewSession()
	_, err := n.router.Write(deadline(t, 30*time.Second), s, []Op{op(key, 1)})
	require.NoError(t, err)
	// The leader falls silent: what is left cannot show the write, and says so.
	f.net.Isolate(memnet.Reset, holders[0].name)
	_, err = n.router.Answer(deadline(t, 30*time.Second), s, ask(t, map[string]any{}))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, fmt.Sprintf("group %d", group))
	require.ErrorContains(t, err, "has not got that far")
	holders[2].stand(false)
	answer, err := n.router.Answer(deadline(t, 30*time.Second), s, ask(t, map[string]any{}))
	require.NoError(t, err)
	require.Contains(t, keysOf(answer.Rows), key)
}

// keyOfGroup is a key that a group owns.
func keyOfGroup(group uint32) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("key", i); placement.GroupOf(key, 6) == group {
			return key
		}
	}
}

func TestADeadHolderIsPassedOverAndRemembered(t *testing.T) {
	for name, cut := range map[string]memnet.Cut{"killed": memnet.Reset, "silent": memnet.Blackhole} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, unforgiving)
			f.nodes[0].put(f.nodes[0].router.NewSession(), 0, 60, 1)
			n := f.nodes[0]
			require.Equal(t, kays(60), n.rows(t))
			_, holders := n.lacks()
			dead := holders[0]
			require.Positive(t, n.asked(dead), "the leader is asked first")
			f.net.Isolate(cut, dead.name)
			require.Equal(t, kays(60), n.rows(t))
			asked := n.asked(dead)
			for range 5 {
				require.Equal(t, kays(60), n.rows(t))
			}
			require.Equal(t, asked, n.asked(dead), "no read waits for it again")
		})
	}
}

func TestWithoutAHolderTheErrorSaysWhichGroup(t *testing.T) {
	f := newFleet(t, unforgiving)
	n := f.nodes[0]
	group, holders := n.lacks()
	for _, h := range holders {
		f.net.Isolate(memnet.Reset, h.name)
	}
	ctx := deadline(t, 30*time.Second)
	for name, read := range map[string]func() error{
		"answer": func() error {
			_, err := n.router.Answer(ctx, n.router.NewSession(), ask(t, map[string]any{}))
			return err
		},
		"horizon": func() error { _, err := n.router.Horizon(); return err },
		"tree":    func() error { _, err := n.router.Tree(ctx, n.router.NewSession(), "m", merkle.Sets); return err },
	} {
		err := read()
		require.ErrorIs(t, err, ErrUnavailable, name)
		require.ErrorContains(t, err, fmt.Sprintf("group %d: ", group), name)
		for _, h := range holders {
			require.ErrorContains(t, err, string(h.id), name)
		}
	}
	require.Equal(t, []string{"1:1:w"}, n.router.UnknownRemovals("s", []string{"1:1:w"}), "what cannot be asked is not known")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := n.router.Tree(ended, n.router.NewSession(), "m", merkle.Sets)
	require.ErrorIs(t, err, context.Canceled)
}

// allBuckets are the buckets of a map.
func allBuckets() (list []uint16) {
	for i := range uint16(merkle.Buckets) {
		list = append(list, i)
	}
	return list
}

// TestAHolderThatLosesTheGroupAmidAReadIsReplaced takes replicas away between pages, one
// after the other.
func TestAHolderThatLosesTheGroupAmidAReadIsReplaced(t *testing.T) {
	f := newFleet(t, tiny)
	n := f.nodes[0]
	n.put(n.router.NewSession(), 0, 200, 1)
	group, holders := n.lacks()
	reader := n.router.remote.NewReader(deadline(t, 60*time.Second), group, 0, new(sync.Mutex))
	var keys []string
	err := reader.Records("m", allBuckets(), "", 0, func(_ uint16, key string, _ protocol.Record) bool {
		keys = append(keys, key)
		if len(keys) == 8 || len(keys) == 16 {
			holders[len(keys)/8-1].lose(group)
		}
		return true
	})
	require.NoError(t, err)
	want := slices.DeleteFunc(kays(200), func(key string) bool { return placement.GroupOf(key, 6) != group })
	slices.Sort(keys)
	require.Equal(t, want, keys)
}

// TestPagesRiseAndTheFirstIndexCounts changes the map between the pages of an answer: what
// is not shown lies above the index that is noted.
func TestPagesRiseAndTheFirstIndexCounts(t *testing.T) {
	f := newFleet(t)
	n := f.nodes[0]
	n.put(n.router.NewSession(), 0, 200, 1)
	group, _ := n.lacks()
	before := uint64(len(f.logs[group]))
	a := ask(t, map[string]any{})
	g := NewGathering(a, fakeNow)
	s := &share{gathering: g, group: group, ask: a, rows: a.Rows, bytes: a.Bytes, pageBytes: 300}
	reader := n.router.remote.NewReader(deadline(t, 60*time.Second), group, 0, new(sync.Mutex))
	for more := true; more; {
		require.NoError(t, reader.Answer("m", s.request(), func(rows *remote.Rows) (err error) {
			more, err = s.take(rows)
			return err
		}))
		if s.pages == 1 {
			n.put(n.router.NewSession(), 0, 200, 2)
		}
	}
	answer := g.Answer()
	require.Equal(t, before, answer.Index[group])
	millis := map[int64]int{}
	for i := range answer.Rows {
		millis[answer.Rows[i].Record.Timestamp.Millis]++
	}
	require.Positive(t, millis[1])
	require.Positive(t, millis[2], "later pages are of later states")
}

func TestAReadEndsWhereItsReaderHasEnough(t *testing.T) {
	f := newFleet(t, tiny)
	n := f.nodes[0]
	n.put(n.router.NewSession(), 0, 300, 1)
	group, holders := n.lacks()
	before := n.asked(holders[0])
	reader := n.router.remote.NewReader(deadline(t, 60*time.Second), group, 0, new(sync.Mutex))
	err := reader.Records("m", allBuckets(), "", 0, func(uint16, string, protocol.Record) bool { return false })
	require.NoError(t, err)
	require.Equal(t, 1, n.asked(holders[0])-before)
}

func TestRequestsThatCannotBeReadAreRefused(t *testing.T) {
	f := newFleet(t)
	n := f.nodes[0]
	_, holders := n.lacks()
	ctx := deadline(t, 30*time.Second)
	for _, body := range [][]byte{nil, {99, 1, 0, 0}, {2, 1, 0, 0, 200}, []byte(strings.Repeat("\xff", 40))} {
		_, err := n.mux.Call(ctx, holders[0].id, methodRead, body)
		require.Error(t, err)
		_, err = n.mux.Call(ctx, holders[0].id, methodFollow, body)
		require.Error(t, err)
	}
}

// TestQueriesAreAnsweredAlikeWhereverTheGroupsAre asks random queries of five nodes and of
// one that holds everything.
func TestQueriesAreAnsweredAlikeWhereverTheGroupsAre(t *testing.T) {
	for name, configure := range map[string][]func(*Config){"large pages": nil, "small pages": {tiny}} {
		t.Run(name, func(t *testing.T) { compareAnswers(t, newFleet(t, configure...), func(*rand.Rand) {}) })
	}
}

// compareAnswers calls change before each query.
func compareAnswers(t *testing.T, f *fleet, change func(rng *rand.Rand)) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	one, g := newRealRouter(t)
	ctx := deadline(t, 120*time.Second)
	var ops []Op
	for i := range 300 {
		rec := stamped(t, int64(i+1), map[string]any{"n": rng.IntN(40), "g": rng.IntN(4), "text": strings.Repeat("x", rng.IntN(30))})
		if rng.IntN(10) == 0 {
			rec.Value = nil
		}
		key := fmt.Sprintf("k%03d", i)
		g.put(t, key, rec)
		ops = append(ops, Op{Map: "m", Key: key, Record: rec})
	}
	s := f.nodes[0].router.NewSession()
	_, err := f.nodes[0].router.Write(ctx, s, ops)
	require.NoError(t, err)
	for range 60 {
		change(rng)
		q := map[string]any{"limit": rng.IntN(60)}
		if rng.IntN(4) == 0 {
			delete(q, "limit")
		}
		if rng.IntN(2) == 0 {
			q["where"] = map[string]any{"g": rng.IntN(5)}
		}
		if rng.IntN(6) == 0 {
			q["predicate"] = map[string]any{"op": "in", "attribute": "_key", "value": []any{"k001", "k050", "k299", "none", "k120"}}
		}
		if rng.IntN(2) == 0 {
			q["sort"] = []any{map[string]any{"field": "n", "direction": []string{"asc", "desc"}[rng.IntN(2)]}}
		}
		if rng.IntN(4) == 0 {
			q["groupBy"], q["aggregations"] = []any{"g"}, []any{map[string]any{"func": "sum", "field": "n"}}
			delete(q, "sort")
		}
		a := ask(t, q)
		a.Explain = rng.IntN(2) == 0
		a.Spare, a.Bytes = rng.IntN(20), []int{1 << 20, 2000, 1}[rng.IntN(3)]
		if a.Query.Grouped() {
			a.Bytes = 1 << 20
		}
		for page := 0; page < 3; page++ {
			want, err := one.Answer(ctx, one.NewSession(), a)
			require.NoError(t, err)
			n := f.nodes[rng.IntN(fleetSize)]
			got, err := n.router.Answer(ctx, s, a)
			require.NoError(t, err, "%v on %s", q, n.name)
			require.Len(t, got.Index, 6)
			require.Equal(t, len(want.Rows), len(got.Rows), "%v on %s", q, n.name)
			require.Equal(t, want.Rows, got.Rows, "%v on %s", q, n.name)
			require.Equal(t, want.More, got.More, "%v on %s", q, n.name)
			require.LessOrEqual(t, len(got.Spare), a.Spare)
			if a.Bytes == 1<<20 {
				require.Equal(t, keysOf(want.Spare), keysOf(got.Spare), "%v on %s", q, n.name)
				require.Equal(t, want.Rest, got.Rest, "%v on %s", q, n.name)
			}
			if !want.More || len(want.Rows) == 0 {
				break
			}
			a.After = want.Place(len(want.Rows) - 1)
		}
	}
	for _, n := range f.nodes {
		a := ask(t, map[string]any{"predicate": map[string]any{"op": "regex", "attribute": "t", "value": "(a|b|c|d|e){1,200}x"}})
		_, err := n.router.Write(ctx, s, []Op{{Map: "m", Key: "costly", Record: stamped(t, 900, map[string]any{"t": string(make([]byte, 1<<19))})}})
		require.NoError(t, err)
		_, err = n.router.Answer(ctx, s, a)
		require.ErrorIs(t, err, ErrQueryTooCostly, n.name)
		require.NotErrorIs(t, err, ErrUnavailable)
	}
}

// TestALimitTravels counts the bytes that a holder sends for a query of few rows.
func TestALimitTravels(t *testing.T) {
	f := newFleet(t)
	n := f.nodes[0]
	n.put(n.router.NewSession(), 0, 600, 1)
	group, _ := n.lacks()
	var found []protocol.KeyedRecord
	a := ask(t, map[string]any{"limit": 2})
	share := &share{gathering: NewGathering(a, fakeNow), ask: a, rows: 2, bytes: 1 << 20, pageBytes: 1 << 20}
	reader := n.router.remote.NewReader(deadline(t, 30*time.Second), group, 0, new(sync.Mutex))
	require.NoError(t, reader.Answer("m", share.request(), func(rows *remote.Rows) error {
		found = rows.List
		require.NotEmpty(t, rows.Cut)
		return nil
	}))
	require.Len(t, found, 2)
}
