package ws

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

type object = map[string]any

// raw is a MsgPack value.
func raw(t testing.TB, v any) msgp.Raw {
	t.Helper()
	b, err := msgp.AppendIntf(nil, v)
	require.NoError(t, err)
	return b
}

// ask subscribes to map m with a query object.
func (c *client) ask(id string, query object, fields ...string) {
	c.t.Helper()
	c.send(&protocol.QuerySub{QueryID: id, MapName: "m", Query: raw(c.t, query), Fields: fields})
}

// set writes a record of map m from outside any connection; nil deletes it.
func (f *fixture) set(key string, v any) {
	f.t.Helper()
	rec := protocol.Record{Timestamp: protocol.Timestamp{Millis: testNow, Counter: f.backend.stamps.Add(1), NodeID: "x"}}
	if v != nil {
		rec.Value = raw(f.t, v)
	}
	f.backend.put("m", key, rec)
}

// rowKeys are the keys of a response.
func rowKeys(resp *protocol.QueryResp) (keys []string) {
	for _, row := range resp.Results {
		keys = append(keys, row.Key)
	}
	return keys
}

// settled waits until the changes of all queries that are answered are on their way: an
// answer may reach its client a moment before that.
func (f *fixture) settled() {
	f.t.Helper()
	eventually(f.t, func() bool {
		for _, c := range f.all() {
			c.queries.mu.Lock()
			for _, q := range c.queries.byID {
				if !q.released {
					c.queries.mu.Unlock()
					return false
				}
			}
			c.queries.mu.Unlock()
		}
		return true
	}, "all queries are live")
}

// updates reads until a query is told of key "fence", and lists what it was told before.
func (c *client) updates(f *fixture) (list []string) {
	c.t.Helper()
	f.settled()
	f.backend.put("fence", "fence", protocol.Record{Value: []byte{1}, Timestamp: protocol.Timestamp{Millis: testNow, Counter: f.backend.stamps.Add(1)}})
	for {
		switch m := c.next().(type) {
		case *protocol.QueryUpdate:
			if m.QueryID == "fence" {
				return list
			}
			list = append(list, fmt.Sprint(m.ChangeType, " ", m.Key))
		case *protocol.ServerEvent:
		default:
			c.t.Fatalf("unexpected %s: %+v", m.Kind(), m)
		}
	}
}

// fenced subscribes to the map of fences.
func (c *client) fenced() {
	c.t.Helper()
	c.send(querySub("fence", "fence"))
	expect[*protocol.QueryResp](c)
}

func TestWindowsMoveInTheOrderThatClientsExpect(t *testing.T) {
	f := start(t)
	for key, n := range map[string]int{"a": 1, "b": 2, "c": 3, "d": 4} {
		f.set(key, object{"n": n, "on": true})
	}
	c := f.dial()
	c.fenced()
	c.ask("q", object{"where": object{"on": true}, "sort": object{"n": "desc"}, "limit": 2})
	resp := expect[*protocol.QueryResp](c)
	require.Equal(t, []string{"d", "c"}, rowKeys(resp))
	require.True(t, resp.HasMore)
	for _, step := range []struct {
		key  string
		v    any
		want []string
	}{
		{"e", object{"n": 5, "on": true}, []string{"LEAVE c", "ENTER e"}},
		{"d", object{"n": 6, "on": true}, []string{"UPDATE d"}},
		{"a", object{"n": 0, "on": true}, nil},
		{"e", object{"n": 2.5, "on": true}, []string{"LEAVE e", "ENTER c"}},
		{"d", object{"n": 6, "on": false}, []string{"LEAVE d", "ENTER e"}},
		{"c", nil, []string{"LEAVE c", "ENTER b"}},
		{"z", object{"n": 99}, nil},
		{"e", nil, []string{"LEAVE e", "ENTER a"}},
		{"a", nil, []string{"LEAVE a"}},
		{"b", object{"n": 2, "on": true}, []string{"UPDATE b"}},
		{"f", object{"n": 1, "on": true}, []string{"ENTER f"}},
	} {
		f.set(step.key, step.v)
		require.Equal(t, step.want, c.updates(f), "%s = %v", step.key, step.v)
	}
}

func TestUnlimitedQueriesFollowTheirPredicate(t *testing.T) {
	f := start(t)
	f.set("a", object{"n": 1, "x": "secret"})
	c := f.dial()
	c.fenced()
	c.ask("q", object{"predicate": object{"op": "gt", "attribute": "n", "value": 0}, "sort": []any{object{"field": "n", "direction": "asc"}}}, "n")
	resp := expect[*protocol.QueryResp](c)
	require.Equal(t, []protocol.QueryRow{{Key: "a", Value: resp.Results[0].Value}}, resp.Results)
	require.Equal(t, map[string]msgp.Raw{"n": raw(t, 1)}, protocol.Fields(resp.Results[0].Value))
	f.set("b", object{"n": 0})
	f.set("b", object{"n": 2, "x": "secret"})
	f.set("a", object{"n": -1})
	f.set("b", object{"n": 3})
	f.set("b", nil)
	require.Equal(t, []string{"ENTER b", "LEAVE a", "UPDATE b", "LEAVE b"}, c.updates(f))
	f.set("c", object{"n": 7, "x": "secret"})
	expect[*protocol.ServerEvent](c)
	require.Equal(t, map[string]msgp.Raw{"n": raw(t, 7)}, protocol.Fields(expect[*protocol.QueryUpdate](c).Value))
}

func TestOwnWritesMoveWindowsSilently(t *testing.T) {
	f := start(t)
	f.set("b", 1)
	f.set("c", 1)
	c := f.dial()
	c.fenced()
	c.ask("q", object{"limit": 2})
	require.Equal(t, []string{"b", "c"}, rowKeys(expect[*protocol.QueryResp](c)))
	c.send(batch(put("1", "m", "a", 1)))
	expect[*protocol.OpAck](c)
	require.Empty(t, c.updates(f))
	f.set("bb", 1)
	require.Empty(t, c.updates(f), "behind the window that the own write has moved")
	f.set("a", nil)
	require.Empty(t, c.updates(f)) // older than the own write
	f.backend.put("m", "a", protocol.Record{Timestamp: protocol.Timestamp{Millis: testNow + 10, NodeID: "x"}})
	require.Equal(t, []string{"LEAVE a", "ENTER bb"}, c.updates(f))
}

func TestPagesOfAQuery(t *testing.T) {
	var late atomic.Int64
	f := start(t, func(_ *Config, d *Deps, _ *fakeBackend) {
		d.Secret, d.Now = []byte("s"), func() int64 { return testNow + late.Load() }
	})
	for i := range 5 {
		f.set(fmt.Sprint("k", i), object{"n": i % 3})
	}
	c := f.dial()
	c.fenced()
	sorted := object{"sort": object{"n": "desc"}, "limit": 2}
	var pages []string
	for cursor, status := "", protocol.CursorNone; ; status = protocol.CursorValid {
		sorted["cursor"] = cursor
		c.ask("page", sorted, "nothing")
		resp := expect[*protocol.QueryResp](c)
		require.Equal(t, status, resp.CursorStatus)
		pages = append(pages, rowKeys(resp)...)
		require.Equal(t, resp.HasMore, resp.NextCursor != "")
		if cursor = resp.NextCursor; cursor == "" {
			break
		}
		sorted["cursor"] = cursor
	}
	require.Equal(t, []string{"k2", "k1", "k4", "k0", "k3"}, pages)

	c.ask("first", object{"limit": 2})
	first := expect[*protocol.QueryResp](c)
	require.NotEmpty(t, first.NextCursor, "also without order")
	c.ask("all", object{})
	require.Empty(t, expect[*protocol.QueryResp](c).NextCursor)
	// What lies before the cursor is not shown.
	c.send(&protocol.QueryUnsub{QueryID: "all"})
	c.send(&protocol.QueryUnsub{QueryID: "first"})
	c.send(&protocol.QueryUnsub{QueryID: "page"})
	c.ask("next", object{"limit": 2, "cursor": first.NextCursor})
	require.Equal(t, []string{"k2", "k3"}, rowKeys(expect[*protocol.QueryResp](c)))
	f.set("k0", object{"n": 8})
	f.set("k11", object{"n": 8})
	require.Equal(t, []string{"LEAVE k3", "ENTER k11"}, c.updates(f))

	for status, query := range map[protocol.CursorStatus]object{
		protocol.CursorInvalid: {"limit": 2, "cursor": "never was one"},
		protocol.CursorExpired: {"limit": 2, "cursor": first.NextCursor},
	} {
		if status == protocol.CursorExpired {
			late.Store(10*time.Minute.Milliseconds() + 1)
		}
		c.ask(string(status), query)
		resp := expect[*protocol.QueryResp](c)
		require.Equal(t, status, resp.CursorStatus)
		require.Empty(t, resp.Results)
		require.False(t, resp.HasMore)
		late.Store(0)
	}
	c.ask("other", object{"limit": 2, "cursor": first.NextCursor, "where": object{"n": 1}})
	require.Equal(t, protocol.CursorInvalid, expect[*protocol.QueryResp](c).CursorStatus)
	f.set("k12", object{"n": 1})
	require.Equal(t, []string{"LEAVE k2", "ENTER k12"}, c.updates(f), "refused cursors left no subscription")
}

func TestLimits(t *testing.T) {
	f := start(t)
	for i := range 10_001 {
		f.backend.put("large", fmt.Sprintf("k%05d", i), record(1, testNow))
	}
	c := f.dial()
	c.fenced()
	c.ask("zero", object{"limit": 0})
	require.False(t, expect[*protocol.QueryResp](c).HasMore)
	f.set("a", 1)
	require.Empty(t, c.updates(f))
	c.ask("zero", object{"limit": 0})
	resp := expect[*protocol.QueryResp](c)
	require.Empty(t, resp.Results)
	require.True(t, resp.HasMore)
	for _, query := range []object{{"limit": 4294967295.0}, {}, {"sort": object{"_key": "desc"}}} {
		c.send(&protocol.QuerySub{QueryID: "large", MapName: "large", Query: raw(t, query)})
		resp := expect[*protocol.QueryResp](c)
		require.Len(t, resp.Results, 10_000)
		require.True(t, resp.HasMore)
		require.Equal(t, query["limit"] != nil, resp.NextCursor != "")
	}
}

func TestHostileQueriesAreAnsweredWithTheirError(t *testing.T) {
	f := start(t)
	f.set("long", object{"t": strings.Repeat("a", 1<<20)})
	deep := object{"op": "and"}
	for range 100 {
		deep = object{"op": "not", "children": []any{deep}}
	}
	clauses := make([]any, 10_000)
	for i := range clauses {
		clauses[i] = object{"op": "eq", "attribute": "a", "value": i}
	}
	regex := func(pattern string) object {
		return object{"predicate": object{"op": "regex", "attribute": "t", "value": pattern}}
	}
	c := f.dial()
	for name, tc := range map[string]struct {
		query object
		code  protocol.Code
	}{
		"clauses":    {object{"predicate": object{"op": "or", "children": clauses}}, 413},
		"depth":      {object{"predicate": deep}, 413},
		"program":    {regex(strings.Repeat("(x{900})", 100)), 413},
		"slow":       {regex("(a|a?|b)+(c|d){1,100}$"), 413},
		"limit":      {object{"limit": -1}, 400},
		"direction":  {object{"sort": object{"a": "up"}}, 400},
		"operator":   {object{"predicate": object{"op": "near"}}, 400},
		"full text":  {object{"predicate": object{"op": "match", "attribute": "t", "query": "x"}}, 501},
		"where list": {object{"where": []any{}}, 400},
	} {
		c.ask(name, tc.query)
		e := expect[*protocol.ErrorMessage](c)
		require.Equal(t, tc.code, e.Code, name)
		require.Equal(t, map[string]any{"type": "QUERY_SUB", "queryId": name}, detailsOf(t, e))
	}
	// Patterns of 1 KB are answered, as are those that are none.
	f.set("long", object{"t": strings.Repeat("a", 1500)})
	c.ask("q", regex("^"+strings.Repeat("a", 1000)))
	require.Len(t, expect[*protocol.QueryResp](c).Results, 1)
	c.ask("q", regex("("))
	require.Empty(t, expect[*protocol.QueryResp](c).Results)
}

func TestALiveQueryEndsWithTheRecordThatCostsTooMuch(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.fenced()
	c.ask("q", object{"predicate": object{"op": "regex", "attribute": "t", "value": "(a|a?|b)+(c|d){1,100}$"}, "limit": 2})
	expect[*protocol.QueryResp](c)
	f.set("k", object{"t": strings.Repeat("a", 1<<20)})
	expect[*protocol.ServerEvent](c)
	e := expect[*protocol.ErrorMessage](c)
	require.Equal(t, protocol.CodeTooLarge, e.Code)
	require.Equal(t, "q", detailsOf(t, e)["queryId"])
	f.set("k", object{"t": "ac"})
	require.Empty(t, c.updates(f))
}

func TestGroupedQueriesAreAnsweredAndGetNoUpdates(t *testing.T) {
	f := start(t)
	for i := range 5 {
		f.set(fmt.Sprint("k", i), object{"g": i % 2, "w": i})
	}
	c := f.dial()
	c.fenced()
	c.ask("q", object{"groupBy": []any{"g"}, "aggregations": []any{object{"func": "max", "field": "w"}}, "sort": object{"__count": "desc"}, "limit": 1})
	resp := expect[*protocol.QueryResp](c)
	require.Equal(t, []string{"I0;"}, rowKeys(resp))
	require.True(t, resp.HasMore)
	require.Equal(t, raw(t, 4), protocol.Fields(resp.Results[0].Value)["__max_w"])
	f.set("k9", object{"g": 1})
	require.Empty(t, c.updates(f))
}

func TestQueriesForOneValueHearOfItsRecordsOnly(t *testing.T) {
	f := start(t)
	c := f.dial()
	for _, id := range []string{"q1", "q2"} {
		c.ask(id, object{"where": object{"depot": "north"}})
		expect[*protocol.QueryResp](c)
	}
	f.settled()
	f.set("s", object{"depot": "south"})
	f.set("n", object{"depot": "north"})
	events, updates := c.collect(3)
	require.Equal(t, []string{"n"}, events, "once for both")
	require.ElementsMatch(t, []string{"q1", "q2"}, updates)
	f.set("n", object{"depot": "south"})
	events, updates = c.collect(3)
	require.Equal(t, []string{"n"}, events, "it was of that value before")
	require.ElementsMatch(t, []string{"q1", "q2"}, updates)
	c.silent()
	// From the sync of the map on, every change is told.
	c.send(&protocol.SyncInit{MapName: "m"})
	expect[*protocol.SyncRespRoot](c)
	f.set("s", object{"depot": "west"})
	require.Equal(t, "s", expect[*protocol.ServerEvent](c).Key)
	f.set("n", object{"depot": "north"})
	events, _ = c.collect(3)
	require.Equal(t, []string{"n"}, events, "still once")
	c.silent()
}

func TestAWindowWithoutKnownRowsBehindItIsReadAgain(t *testing.T) {
	reading, goOn := make(chan struct{}), make(chan struct{})
	var reads atomic.Int64
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onSnapshot = func(context.Context) error {
			if reads.Add(1) == 3 { // the fence's, the query's, the refill's
				close(reading)
				<-goOn
			}
			return nil
		}
	})
	for i := range 30 {
		f.set(fmt.Sprintf("k%02d", i), i)
	}
	c := f.dial()
	c.fenced()
	c.ask("q", object{"limit": 1})
	require.Equal(t, []string{"k00"}, rowKeys(expect[*protocol.QueryResp](c)))
	for i := range 17 {
		f.set(fmt.Sprintf("k%02d", i), nil)
	}
	<-reading
	f.set("k17", nil) // while it is read
	f.set("k18", 100)
	close(goOn)
	var got []string
	for len(got) == 0 || got[len(got)-1] != "ENTER k18" {
		if u, ok := c.next().(*protocol.QueryUpdate); ok {
			got = append(got, fmt.Sprint(u.ChangeType, " ", u.Key))
		}
	}
	require.Equal(t, []string{"LEAVE k00", "ENTER k01"}, got[:2])
	require.NotContains(t, got, "ENTER k17")
	require.Empty(t, c.updates(f))
}

func TestWindowsAreBoundedTogether(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) { c.MaxWindowBytes = 2000 })
	for i := range 30 {
		f.set(fmt.Sprint("k", i), i)
	}
	c := f.dial()
	c.ask("large", object{"limit": 20})
	require.Equal(t, protocol.CodeOverloaded, expect[*protocol.ErrorMessage](c).Code)
	c.ask("unbounded", object{})
	expect[*protocol.QueryResp](c)
	c.ask("small", object{"limit": 1, "where": object{"_value": 3}})
	expect[*protocol.QueryResp](c)
	require.Positive(t, f.windowBytes.Load())
	c.send(&protocol.QueryUnsub{QueryID: "small"})
	c.silent()
	require.Zero(t, f.windowBytes.Load())
}

func TestAWindowThatGrowsBeyondTheBoundEndsWithAnError(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) { c.MaxWindowBytes = 100_000 })
	c := f.dial()
	c.fenced()
	c.ask("q", object{"limit": 1000})
	expect[*protocol.QueryResp](c)
	for i := range 600 {
		f.set(fmt.Sprint("k", i), i)
	}
	for {
		if e, ok := c.next().(*protocol.ErrorMessage); ok {
			require.Equal(t, protocol.CodeOverloaded, e.Code)
			require.Equal(t, "q", detailsOf(t, e)["queryId"])
			break
		}
	}
	eventually(t, func() bool { return f.windowBytes.Load() == 0 }, "the window counts no more")
}
