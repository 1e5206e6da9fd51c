package partitions

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
)

// world is a map, the changes of which reach one client late.
type world struct {
	t       *testing.T
	rnd     *rand.Rand
	ask     Ask
	records map[string]protocol.Record
	index   map[uint32]uint64
	millis  int64
	// queue are the changes on their way, answer is the one to a refill on its way.
	queue  []viewEvent
	answer *Answer
	view   *View
	// client is what the client holds.
	client map[string]string
	// shown is when the latest value of each key that it was shown was written.
	shown map[string]float64
}

// read answers from the present state.
func (w *world) read() *Answer {
	g := NewGathering(w.ask, fakeNow)
	for _, key := range slices.Sorted(maps.Keys(w.records)) {
		if !g.Add(key, w.records[key]) {
			break
		}
	}
	require.NoError(w.t, g.Err())
	for group, index := range w.index {
		g.covered(group, index)
	}
	return g.Answer()
}

// write changes a random record.
func (w *world) write(own bool) {
	w.millis++
	key := fmt.Sprintf("k%d", w.rnd.IntN(30))
	record := protocol.Record{Timestamp: protocol.Timestamp{Millis: w.millis, NodeID: "c"}}
	if w.rnd.IntN(4) > 0 {
		value := map[string]any{"n": w.rnd.IntN(12), "g": w.rnd.IntN(3), "at": w.millis}
		if w.rnd.IntN(5) == 0 {
			value["pad"] = strings.Repeat("x", w.rnd.IntN(150_000))
		}
		record.Value = object(w.t, value)
	}
	group := uint32(1 + len(key)%2)
	w.index[group]++
	old := w.records[key]
	w.records[key] = record
	e := &Event{Map: "m", Key: key, Record: record, Existed: !old.IsTombstone(), Old: old.Value, Group: group, Index: w.index[group]}
	w.queue = append(w.queue, viewEvent{e, own})
}

// show has the client take what one change, or one refill, means for it.
func (w *world) show(changes []Change, refill bool, err error) {
	require.NoError(w.t, err)
	for _, c := range changes {
		if c.Type == protocol.ChangeLeave {
			require.Empty(w.t, c.Value)
			// A query without limit does not know which rows lie before its cursor.
			if w.ask.After == nil || w.ask.Query.Limit() != NoLimit {
				require.Contains(w.t, w.client, c.Key, "LEAVE of what the client does not have")
			}
			delete(w.client, c.Key)
			continue
		}
		_, has := w.client[c.Key]
		require.Equal(w.t, c.Type == protocol.ChangeUpdate, has, "%s of %s", c.Type, c.Key)
		w.client[c.Key] = string(c.Value)
		at, _ := protocol.Number(protocol.Fields(c.Value)["at"])
		require.GreaterOrEqual(w.t, at, w.shown[c.Key], "%s went back in time", c.Key)
		w.shown[c.Key] = at
	}
	if limit := w.ask.Query.Limit(); limit != NoLimit {
		require.LessOrEqual(w.t, len(w.client), limit)
	}
	if refill {
		w.ask.Rows = w.view.Limit()
		w.answer = w.read()
	}
}

// step delivers something that is on its way.
func (w *world) step() {
	if w.answer != nil && (len(w.queue) == 0 || w.rnd.IntN(4) == 0) {
		answer := w.answer
		w.answer = nil
		w.show(w.view.Refill(answer, fakeNow, nil))
		return
	}
	if len(w.queue) > 0 {
		e := w.queue[0]
		w.queue = w.queue[1:]
		changes, refill, err := w.view.Apply(e.Event, e.own, fakeNow, nil)
		order := []protocol.ChangeType{protocol.ChangeLeave, protocol.ChangeEnter, protocol.ChangeUpdate}
		require.True(w.t, slices.IsSortedFunc(changes, func(a, b Change) int { return slices.Index(order, a.Type) - slices.Index(order, b.Type) }), changes)
		w.show(changes, refill, err)
	}
}

// TestAViewEqualsAFullQuery holds that after any history the client of a live query holds
// what the query answers.
func TestAViewEqualsAFullQuery(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	even := map[string]any{"op": "in", "attribute": "n", "value": []any{0, 2, 4, 6, 8, 10}}
	for round := range 300 {
		object := map[string]any{}
		if rnd.IntN(2) == 0 {
			object["predicate"] = even
		}
		switch rnd.IntN(3) {
		case 0:
			object["sort"] = map[string]any{"n": "asc"}
		case 1:
			object["sort"] = []any{map[string]any{"field": "g", "direction": "desc"}, map[string]any{"field": "n", "direction": "asc"}}
		}
		if rnd.IntN(4) > 0 {
			object["limit"] = 1 + rnd.IntN(12)
		}
		w := &world{
			t: t, rnd: rnd, ask: ask(t, object), records: map[string]protocol.Record{}, index: map[uint32]uint64{}, client: map[string]string{}, shown: map[string]float64{},
		}
		w.ask.Spare = min(Spare(w.ask.Query.Limit()), rnd.IntN(10))
		if w.ask.Query.Limit() <= 0 {
			w.ask.Bytes = 8 << 20 // all rows: what was left out would come as changes
		}
		for range rnd.IntN(60) {
			w.write(false)
		}
		if rnd.IntN(3) == 0 {
			place := w.ask.Query.Place(fmt.Sprintf("k%d", rnd.IntN(30)), w.records["k3"].Value)
			w.ask.After = &place
		}
		answer := w.read()
		w.queue = nil // the snapshot contains them
		w.view = NewView(w.ask.Query, w.ask.After, answer)
		w.view.spare = w.ask.Spare
		for _, row := range answer.Rows {
			w.client[row.Key] = string(row.Record.Value)
		}
		for range 200 {
			if rnd.IntN(2) == 0 {
				w.write(false)
			} else {
				w.step()
			}
		}
		for len(w.queue) > 0 || w.answer != nil {
			w.step()
		}
		bytes, size := 0, 0
		for _, row := range w.view.rows {
			bytes, size = bytes+len(row.value), size+viewRowBytes+row.place.Size()+len(row.value)
		}
		require.Equal(t, []int{bytes, size, len(w.view.rows)}, []int{w.view.bytes, w.view.Size(), len(w.view.byKey)})
		want := map[string]string{}
		for _, row := range w.read().Rows {
			want[row.Key] = string(row.Record.Value)
		}
		require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(w.client)), "round %d: %v", round, object)
		require.Equal(t, want, w.client, "round %d: %v", round, object)
	}
}

func TestOwnWritesMoveTheWindowSilently(t *testing.T) {
	w := &world{t: t, ask: ask(t, map[string]any{"limit": 2})}
	g := NewGathering(Ask{Query: w.ask.Query, Rows: 2, Spare: 5, Bytes: 1 << 20}, fakeNow)
	for _, key := range []string{"b", "c", "d"} {
		g.Add(key, stamped(t, 1, key))
	}
	v := NewView(w.ask.Query, nil, g.Answer())
	require.True(t, v.WantsOwn())
	changes, refill, err := v.Apply(&Event{Key: "a", Record: stamped(t, 2, 1), Group: 1, Index: 9}, true, fakeNow, nil)
	require.NoError(t, err)
	require.False(t, refill)
	require.Empty(t, changes)
	// Another's deletion brings back the row that the own write displaced.
	changes, _, err = v.Apply(&Event{Key: "a", Existed: true, Group: 1, Index: 10}, false, fakeNow, nil)
	require.NoError(t, err)
	require.Equal(t, []Change{{Type: protocol.ChangeLeave, Key: "a"}, {protocol.ChangeEnter, "c", object(t, "c")}}, changes)
	changes, _, err = NewView(ask(t, map[string]any{}).Query, nil, g.Answer()).Apply(&Event{Key: "z", Record: stamped(t, 2, 1)}, true, fakeNow, nil)
	require.NoError(t, err)
	require.Empty(t, changes)
}

func TestViewsThatTakeNoRows(t *testing.T) {
	e := &Event{Key: "a", Record: stamped(t, 2, map[string]any{"g": 1}), Group: 1, Index: 9}
	for _, object := range []map[string]any{{"limit": 0}, {"groupBy": []any{"g"}}, {"groupBy": []any{"g"}, "limit": 3}} {
		a := ask(t, object)
		v := NewView(a.Query, nil, NewGathering(a, fakeNow).Answer())
		changes, refill, err := v.Apply(e, false, fakeNow, nil)
		require.NoError(t, err)
		require.False(t, refill)
		require.Empty(t, changes)
		require.False(t, v.WantsOwn())
	}
}

func TestAWindowThatFallsBehindWhileItIsReadSaysSo(t *testing.T) {
	a := ask(t, map[string]any{"limit": 1})
	g := NewGathering(a, fakeNow)
	g.Add("a", stamped(t, 1, 1))
	g.Add("b", stamped(t, 1, 1))
	v := NewView(a.Query, nil, g.Answer())
	_, refill, err := v.Apply(&Event{Key: "a", Existed: true, Old: object(t, 1), Group: 1, Index: 1}, false, fakeNow, nil)
	require.NoError(t, err)
	require.True(t, refill)
	for i := 0; err == nil; i++ {
		require.LessOrEqual(t, i, viewBacklog)
		_, _, err = v.Apply(&Event{Key: "c", Record: stamped(t, 2, 1), Group: 1, Index: uint64(i + 2)}, false, fakeNow, nil)
	}
	require.True(t, errors.Is(err, ErrBehind))
}
