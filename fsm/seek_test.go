package fsm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/index"
	"github.com/quorate/quorate/fsm/query"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/protocol"
)

type dict = map[string]any

func indexed(x *fsm.Indexes) option {
	return func(_ *writebehind.Config, c *fsm.Config) { c.Indexes = x }
}

func pack(t testing.TB, v any) msgp.Raw {
	t.Helper()
	b, err := msgp.AppendIntf(nil, v)
	require.NoError(t, err)
	return b
}

func compileQuery(t testing.TB, object any) *query.Query {
	t.Helper()
	q, err := query.Compile(pack(t, object), query.Options{})
	require.NoError(t, err)
	return q
}

// seekValues are what the attributes of random records have.
var seekValues = []any{
	nil, true, false, 0, 1, 1.0, -2.5, 7, math.NaN(), math.Inf(1), "", "a", "b", "ab", "\x00", strings.Repeat("x", 256), strings.Repeat("x", 300), []any{1}, dict{"c": 1},
	math.Copysign(0, -1), int64(math.MaxInt64), uint64(math.MaxUint64), math.Inf(-1), "\xff", "a\x00", []byte{1},
}

func seekValue(rnd *rand.Rand) any { return seekValues[rnd.IntN(len(seekValues))] }

// seekRecord is a random record; some lack attributes, are no map or have many fields.
func seekRecord(rnd *rand.Rand) any {
	if rnd.IntN(8) == 0 {
		return seekValue(rnd)
	}
	rec := dict{"n": rnd.IntN(1000)}
	if rnd.IntN(8) == 0 {
		for i := range 30 {
			rec[fmt.Sprint("f", i)] = i
		}
		rec["_value"] = seekValue(rnd)
	}
	for _, name := range []string{"a", "b"} {
		if rnd.IntN(6) > 0 {
			rec[name] = seekValue(rnd)
		}
	}
	if rnd.IntN(2) == 0 {
		rec["d"] = dict{"e": seekValue(rnd)}
	}
	return rec
}

// seekQuery is a random query: conditions that must all hold, and an order perhaps.
func seekQuery(rnd *rand.Rand) dict {
	ops := []string{"eq", "gt", "gte", "lt", "lte", "between", "in", "startsWith", "isNull", "neq"}
	names := []string{"a", "b", "_value", "_key", "d.e"}
	var children []any
	for range rnd.IntN(3) {
		op, want := ops[rnd.IntN(len(ops))], seekValue(rnd)
		if op == "between" || op == "in" {
			want = []any{seekValue(rnd), seekValue(rnd)}
		}
		children = append(children, dict{"op": op, "attribute": names[rnd.IntN(len(names))], "value": want})
	}
	object := dict{"predicate": dict{"op": "and", "children": children}}
	if rnd.IntN(2) == 0 {
		direction := []string{"asc", "desc"}[rnd.IntN(2)]
		object["sort"] = []any{dict{"field": names[rnd.IntN(4)], "direction": direction}, dict{"field": "n", "direction": "asc"}}
	}
	return object
}

func definition(mapName, attribute, kind string) index.Definition {
	return index.Definition{MapName: mapName, Attribute: attribute, Type: kind}
}

var seekDefinitions = []index.Definition{
	definition("m", "a", index.Navigable), definition("m", "b", index.Hash), definition("m", "d.e", index.Navigable), definition("x", "a", index.Hash),
	definition("m", "_value", index.Navigable), definition("m", "_key", index.Navigable),
}

// rows are the places of the rows that a query has among records, in its order.
type rows struct {
	t      testing.TB
	query  *query.Query
	after  *query.Place
	places []query.Place
}

func (r *rows) add(key string, rec protocol.Record) {
	if rec.IsTombstone() {
		return
	}
	matched, err := r.query.Match(key, rec.Value)
	require.NoError(r.t, err)
	place := r.query.Place(key, rec.Value)
	if matched && (r.after == nil || r.query.Compare(&place, r.after) > 0) {
		r.places = append(r.places, place)
	}
}

func (r *rows) keys() (list []string) {
	slices.SortFunc(r.places, func(a, b query.Place) int { return r.query.Compare(&a, &b) })
	for i := range r.places {
		list = append(list, r.places[i].Key)
	}
	return list
}

// checkSeek compares what an index finds for a query with a scan, and reports whether there
// was one to use.
func (r *rig) checkSeek(q *query.Query, after *query.Place) bool {
	r.t.Helper()
	scanned, sought := rows{t: r.t, query: q, after: after}, rows{t: r.t, query: q, after: after}
	_, err := r.machine.Scan("m", "", func(key string, rec protocol.Record) bool { scanned.add(key, rec); return true })
	r.must(err)
	ordered := false
	var last *query.Place
	found, at, err := r.machine.Seek(fsm.Seek{Map: "m", Query: q, After: after}, func(f fsm.Found) { ordered = f.Ordered }, func(key string, rec protocol.Record) bool {
		place := q.Place(key, rec.Value)
		if ordered && last != nil {
			require.False(r.t, q.Passed(last, &place), "%q comes behind %q", key, last.Key)
		}
		last = &place
		sought.add(key, rec)
		return true
	})
	r.must(err)
	if !found.ByIndex() {
		require.Nil(r.t, last)
		return false
	}
	applied, _ := r.machine.Applied()
	require.Equal(r.t, applied, at)
	require.Equal(r.t, scanned.keys(), sought.keys(), "by %+v", found)
	return true
}

// checkSeeks does so for random queries, some of which go on behind a row.
func (r *rig) checkSeeks(rnd *rand.Rand, n int) (used int) {
	r.t.Helper()
	for range n {
		q := compileQuery(r.t, seekQuery(rnd))
		var after *query.Place
		if rnd.IntN(3) == 0 {
			place := q.Place(fmt.Sprint("k", rnd.IntN(60)), pack(r.t, seekRecord(rnd)))
			after = &place
		}
		if r.checkSeek(q, after) {
			used++
		}
	}
	return used
}

// TestAnIndexFindsWhatAScanFinds holds both against each other over random histories, with
// flushes, crashes and snapshots, before, while and after indexes are built.
func TestAnIndexFindsWhatAScanFinds(t *testing.T) {
	rnd := newRand(t)
	indexes := fsm.NewIndexes()
	options := []option{indexed(indexes), batchSize(20), cacheBytes(4000)}
	r, at := newRig(t, 1, options...), uint64(0)
	used, earlier := 0, ""
	for step := range 400 {
		var cmds []command.Raw
		for range 1 + rnd.IntN(8) {
			rec := protocol.Record{Timestamp: ts(int64(at)+1, int64(len(cmds)))}
			if rnd.IntN(5) > 0 {
				rec.Value = pack(t, seekRecord(rnd))
			}
			cmds = append(cmds, putRecord("m", fmt.Sprint("k", rnd.IntN(60)), rec))
		}
		at++
		r.apply(entry(at, ts(int64(at), 0), cmds...))
		switch rnd.IntN(24) {
		case 0:
			indexes.Define(seekDefinitions[:rnd.IntN(len(seekDefinitions)+1)])
		case 1, 2, 3:
			r.flush()
		case 4:
			r.flush()
			r = r.crash(options...)
		case 5:
			r.flush()
			if earlier == "" || rnd.IntN(3) == 0 {
				earlier = string(r.snapshot())
			}
			r.must(r.machine.Restore(strings.NewReader(earlier)))
			at, _ = r.machine.Applied()
		case 6:
			at++
			r.apply(entry(at, ts(int64(at), 0), r.collect(int64(at)-5, 100)))
		default:
			indexes.Define(seekDefinitions)
			indexes.Step()
		}
		used += r.checkSeeks(rnd, 1+step%10)
	}
	require.Greater(t, used, 200)
}

func TestAnIndexIsBuiltInPagesBesideWrites(t *testing.T) {
	indexes := fsm.NewIndexes()
	r := newRig(t, 1, indexed(indexes))
	const records, page = 5000, 2048
	write := func(from, to int, at uint64) {
		var cmds []command.Raw
		for i := from; i < to; i++ {
			cmds = append(cmds, putRecord("m", fmt.Sprintf("k%04d", i), protocol.Record{Value: pack(t, dict{"a": i % 10}), Timestamp: ts(int64(at), int64(i))}))
		}
		r.apply(entry(at, ts(int64(at), 0), cmds...))
	}
	write(0, records, 1)
	r.flush()
	q := compileQuery(t, dict{"where": dict{"a": 7}})
	indexes.Define(seekDefinitions[:1])
	for built := 0; ; built++ {
		s, known := r.machine.IndexStat("m", "a")
		require.True(t, known)
		require.Equal(t, s.Ready, r.checkSeek(q, nil), "an index is used when it is built")
		require.Equal(t, min(built*page, s.Records), s.Processed)
		if s.Ready {
			require.Equal(t, records+100*(built-0), s.Records)
			require.Equal(t, s.Records, s.Entries)
			require.True(t, s.Restart, "definitions that are the first that a node hears of are not new")
			break
		}
		require.True(t, indexes.Step())
		write(records+100*built, records+100*built+100, uint64(built)+2)
	}
	require.False(t, indexes.Step())
	indexes.Define(seekDefinitions[:3])
	s, _ := r.machine.IndexStat("m", "b")
	require.False(t, s.Restart)
	for indexes.Step() {
	}
	require.True(t, r.checkSeek(compileQuery(t, dict{"where": dict{"b": 1}}), nil))
	indexes.Define(nil)
	require.False(t, r.checkSeek(q, nil))
	_, known := r.machine.IndexStat("m", "a")
	require.False(t, known)
}

func TestAnIndexWithTooManyCandidatesIsNotUsed(t *testing.T) {
	indexes := fsm.NewIndexes()
	indexes.Define(seekDefinitions[:1])
	r := newRig(t, 1, indexed(indexes))
	for at := range uint64(3) {
		var cmds []command.Raw
		for i := range fsm.MaxCandidates / 2 {
			cmds = append(cmds, putRecord("m", fmt.Sprint(at, "-", i), protocol.Record{Value: pack(t, dict{"a": int(at)}), Timestamp: ts(1, 0)}))
		}
		r.apply(entry(at+1, ts(1, 0), cmds...))
	}
	for indexes.Step() {
	}
	in := func(values ...any) dict {
		return dict{"predicate": dict{"op": "in", "attribute": "a", "value": values}}
	}
	require.True(t, r.checkSeek(compileQuery(t, in(0, 1)), nil))
	require.False(t, r.checkSeek(compileQuery(t, in(0, 1, 2)), nil))
	sorted := in(0, 1, 2)
	sorted["sort"] = dict{"a": "desc"}
	require.True(t, r.checkSeek(compileQuery(t, sorted), nil), "in the order of the rows it ends when there are enough")
	list := make([]any, 10_000)
	for i := range list {
		list[i] = i
	}
	require.False(t, r.checkSeek(compileQuery(t, in(list...)), nil))
}

func TestAReopenedMachineBuildsItsIndexesAnew(t *testing.T) {
	indexes, store := fsm.NewIndexes(), memory.New(memory.Config{})
	indexes.Define(seekDefinitions[:1])
	r := openRig(t, 1, store, indexed(indexes))
	r.apply(entry(1, ts(1, 0), putRecord("m", "k", protocol.Record{Value: pack(t, dict{"a": 1}), Timestamp: ts(1, 0)})))
	r.flush()
	q := compileQuery(t, dict{"where": dict{"a": 1}})
	for range 2 {
		for indexes.Step() {
		}
		require.True(t, r.checkSeek(q, nil))
		r = r.crash(indexed(indexes))
		require.False(t, r.checkSeek(q, nil))
		s, known := r.machine.IndexStat("m", "a")
		require.True(t, known && s.Restart && !s.Ready)
	}
}
