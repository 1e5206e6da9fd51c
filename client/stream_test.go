package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/protocol"
)

// rows answers a query with keys.
func (p *peer) rows(m *protocol.QuerySub, keys ...string) {
	resp := &protocol.QueryResp{QueryID: m.QueryID, Results: []protocol.QueryRow{}}
	for _, key := range keys {
		resp.Results = append(resp.Results, protocol.QueryRow{Key: key, Value: msgp.AppendString(nil, key)})
	}
	p.send(resp)
}

func (p *peer) change(m *protocol.QuerySub, kind protocol.ChangeType, key string) {
	u := &protocol.QueryUpdate{QueryID: m.QueryID, Key: key, ChangeType: kind}
	if kind != protocol.ChangeLeave {
		u.Value = msgp.AppendString(nil, key)
	}
	p.send(u)
}

func TestAReadOfAKeyAsksForTheKey(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	get := func(key string, opts ...client.ReadOption) <-chan error {
		return begin(func() error {
			r, err := c.Map("m").Get(within(t), key, opts...)
			if err == nil && (r.Key != key || r.Value.String() != `"`+key+`"`) {
				return fmt.Errorf("got %+v", r)
			}
			return err
		})
	}
	done := get("a", client.Linearizable())
	m := next[*protocol.QuerySub](p)
	require.Equal(t, "linearizable", m.Consistency)
	require.NotEmpty(t, m.Query)
	p.rows(m, "a")
	require.NoError(t, await(t, done))
	require.Equal(t, m.QueryID, next[*protocol.QueryUnsub](p).QueryID)
	done = get("c")
	p.rows(next[*protocol.QuerySub](p))
	require.ErrorIs(t, await(t, done), client.ErrNotFound)
	next[*protocol.QueryUnsub](p)
}

func TestAQueryIsSentAsTheProtocolHasIt(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	done := begin(func() error {
		res, err := c.Map("m").Find(within(t), client.Query{
			Where: map[string]any{"depot": "north"}, Predicate: map[string]any{"op": "gt", "attribute": "weight", "value": 3},
			Sort: []client.Order{{Field: "weight", Descending: true}, {Field: "depot"}}, Limit: 2, Cursor: "c1",
			GroupBy: []string{"depot"}, Aggregations: []client.Aggregation{{Func: "count"}, {Func: "sum", Field: "weight"}},
			Fields: []string{"weight"},
		})
		if err == nil && (!res.More || res.Cursor != "c2" || len(res.Records) != 0) {
			return fmt.Errorf("got %+v", res)
		}
		return err
	})
	m := next[*protocol.QuerySub](p)
	require.Equal(t, []string{"weight"}, m.Fields)
	require.JSONEq(t, `{"where":{"depot":"north"},"predicate":{"op":"gt","attribute":"weight","value":3},
		"sort":[{"field":"weight","direction":"desc"},{"field":"depot","direction":"asc"}],"limit":2,"cursor":"c1",
		"groupBy":["depot"],"aggregations":[{"func":"count"},{"func":"sum","field":"weight"}]}`, client.Value(m.Query).String())
	p.send(&protocol.QueryResp{QueryID: m.QueryID, HasMore: true, NextCursor: "c2", CursorStatus: protocol.CursorValid})
	require.NoError(t, await(t, done))
	next[*protocol.QueryUnsub](p)

	for _, answer := range []*protocol.QueryResp{{CursorStatus: protocol.CursorExpired}, {Error: "no"}} {
		done = begin(func() error { _, err := c.Map("m").Find(within(t), client.Query{}); return err })
		answer.QueryID = next[*protocol.QuerySub](p).QueryID
		p.send(answer)
		require.ErrorIs(t, await(t, done), client.ErrRefused)
	}
}

func TestAQueryIsExplainedToWhoAsks(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	plan := client.Plan{Kind: "index", Attribute: "depot", IndexType: "hash", GroupsIndexed: 6, Candidates: 3, Matched: 2}
	for _, asks := range []bool{true, false} {
		var opts []client.ReadOption
		if asks {
			opts = append(opts, client.Explain(), client.Linearizable())
		}
		var res *client.Result
		done := begin(func() (err error) {
			res, err = c.Map("m").Find(within(t), client.Query{Where: map[string]any{"depot": "north"}}, opts...)
			return err
		})
		m := next[*protocol.QuerySub](p)
		require.Equal(t, asks, m.Explain)
		require.Equal(t, asks, m.Consistency != "")
		resp := &protocol.QueryResp{QueryID: m.QueryID}
		if asks {
			resp.Plan = &plan
		}
		p.send(resp)
		require.NoError(t, await(t, done))
		next[*protocol.QueryUnsub](p)
		if asks {
			require.Equal(t, &plan, res.Plan)
		} else {
			require.Nil(t, res.Plan)
		}
	}
}

// following opens a Follow whose first rows are keys.
func following(t *testing.T, c *client.Client, p *peer, keys ...string) (*client.Follow, *protocol.QuerySub) {
	t.Helper()
	var follow *client.Follow
	done := begin(func() (err error) {
		follow, err = c.Map("m").Follow(within(t), client.Query{})
		return err
	})
	m := next[*protocol.QuerySub](p)
	p.rows(m, keys...)
	require.NoError(t, await(t, done))
	requireChange(t, follow, client.Snapshot, keys...)
	return follow, m
}

func requireChange(t *testing.T, f *client.Follow, kind client.ChangeType, keys ...string) {
	t.Helper()
	change, err := f.Next(within(t))
	require.NoError(t, err)
	require.Equal(t, kind, change.Type)
	if kind != client.Snapshot {
		require.Equal(t, keys, []string{change.Key})
		return
	}
	var got []string
	for _, r := range change.Records {
		got = append(got, r.Key)
	}
	require.Equal(t, keys, got)
}

func TestAFollowShowsChangesInOrder(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	follow, m := following(t, c, p, "a")
	p.change(m, protocol.ChangeEnter, "b")
	p.change(m, protocol.ChangeUpdate, "a")
	p.change(m, protocol.ChangeLeave, "b")
	requireChange(t, follow, client.Enter, "b")
	requireChange(t, follow, client.Update, "a")
	requireChange(t, follow, client.Leave, "b")
	p.rows(m, "x") // the server had to leave changes out
	requireChange(t, follow, client.Snapshot, "x")
	p.cut()
	p = f.accept()
	m = next[*protocol.QuerySub](p)
	p.complain(protocol.CodeUnavailable, "type", "QUERY_SUB", "queryId", m.QueryID)
	m = next[*protocol.QuerySub](p)
	p.rows(m, "y")
	requireChange(t, follow, client.Snapshot, "y")
	follow.Close()
	require.Equal(t, m.QueryID, next[*protocol.QueryUnsub](p).QueryID)
	_, err := follow.Next(within(t))
	require.ErrorIs(t, err, client.ErrClosed)

	done := begin(func() error { _, err := c.Map("m").Follow(within(t), client.Query{}); return err })
	p.complain(protocol.CodeNotImplemented, "type", "QUERY_SUB", "queryId", next[*protocol.QuerySub](p).QueryID)
	require.ErrorIs(t, await(t, done), client.ErrRefused)
	follow, _ = following(t, c, p)
	require.NoError(t, c.Close())
	for _, err = range follow.All(within(t)) {
		require.Error(t, err)
	}
	require.ErrorIs(t, err, client.ErrClosed)
}

func TestASlowFollowerIsShownTheRowsAnew(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{StreamBuffer: 4}, f)
	p := f.accept()
	follow, m := following(t, c, p, "a")
	for i := range 20 {
		p.change(m, protocol.ChangeEnter, fmt.Sprint(i))
	}
	require.Equal(t, m.QueryID, next[*protocol.QueryUnsub](p).QueryID, "it costs nothing while nobody reads")
	got := begin(func() error {
		change, err := follow.Next(within(t))
		if err == nil && (change.Type != client.Snapshot || change.Records[0].Key != "now") {
			return fmt.Errorf("got %+v", change)
		}
		return err
	})
	again := next[*protocol.QuerySub](p)
	require.NotEqual(t, m.QueryID, again.QueryID)
	p.change(m, protocol.ChangeEnter, "of the old one")
	p.change(again, protocol.ChangeEnter, "before the rows")
	require.NoError(t, c.Publish(within(t), "t", nil)) // all before it was handled
	next[*protocol.TopicPub](p)
	p.rows(again, "now")
	require.NoError(t, await(t, got))
	p.change(again, protocol.ChangeEnter, "b")
	requireChange(t, follow, client.Enter, "b")
}

func TestTopicsTellOfGaps(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{StreamBuffer: 3}, f)
	p := f.accept()
	var sub *client.Subscription
	done := begin(func() (err error) { sub, err = c.Subscribe(within(t), "t"); return err })
	next[*protocol.TopicSub](p)
	require.NoError(t, await(t, done))
	say := func(n int) {
		p.send(&protocol.TopicMessage{Topic: "t", Data: msgp.AppendInt(nil, n), PublisherID: "p", Timestamp: 1000})
	}
	expect := func(n int) {
		t.Helper()
		m, err := sub.Next(within(t))
		require.NoError(t, err)
		if m.Gap {
			require.Equal(t, -1, n)
			return
		}
		require.Equal(t, fmt.Sprint(n), m.Data.String())
		require.Equal(t, int64(1000), m.Time.UnixMilli())
	}
	say(1)
	expect(1)
	p.cut()
	expect(-1)
	p = f.accept()
	next[*protocol.TopicSub](p)
	for n := range 10 {
		say(n)
	}
	require.NoError(t, c.Publish(within(t), "other", nil)) // all before it was handled
	next[*protocol.TopicPub](p)
	for _, n := range []int{0, 1, 2, -1} {
		expect(n)
	}
	say(11)
	expect(11)
	sub.Close()
	next[*protocol.TopicUnsub](p)
	_, err := sub.Next(within(t))
	require.ErrorIs(t, err, client.ErrClosed)
}

func TestARefusedSubscriptionIsNotTakenForOne(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	p.held.Store(true)
	done := begin(func() error { _, err := c.Subscribe(within(t), "t"); return err })
	next[*protocol.TopicSub](p)
	p.complain(protocol.CodeOverloaded, "type", "TOPIC_SUB", "topic", "t")
	p.pong(next[*protocol.Ping](p))
	next[*protocol.TopicSub](p) // another attempt
	ping := next[*protocol.Ping](p)
	select {
	case err := <-done:
		t.Errorf("it is not answered yet: %v", err)
	default:
	}
	p.pong(ping)
	require.NoError(t, await(t, done))
}

func TestAPublishIsNotRepeated(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	done := begin(func() error { return c.Publish(within(t), "t", 1) })
	next[*protocol.TopicPub](p)
	require.NoError(t, await(t, done))
	p.held.Store(true)
	first := begin(func() error { return c.Publish(within(t), "t", 1) })
	next[*protocol.TopicPub](p)
	ping := next[*protocol.Ping](p)
	second := begin(func() error { return c.Publish(within(t), "t", 2) })
	next[*protocol.TopicPub](p)
	next[*protocol.Ping](p)
	p.pong(ping)
	require.NoError(t, await(t, first))
	p.complain(protocol.CodeOverloaded, "type", "TOPIC_PUB", "topic", "t")
	require.ErrorIs(t, await(t, second), client.ErrUnavailable)
	third := begin(func() error { return c.Publish(within(t), "t", 3) })
	next[*protocol.TopicPub](p)
	p.cut()
	require.ErrorIs(t, await(t, third), client.ErrUnknown)
	p = f.accept()
	done = begin(func() error { return c.Publish(within(t), "t", 4) })
	require.Equal(t, "4", client.Value(next[*protocol.TopicPub](p).Data).String())
	require.NoError(t, await(t, done))
}

func TestCounterRefusalsFindTheirRequest(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	add := func(name string) <-chan error {
		return begin(func() error { _, err := c.Counter(name).Add(within(t), 1); return err })
	}
	a, b := add("a"), (<-chan error)(nil)
	first := next[*protocol.CounterSync](p)
	b = add("b")
	second := next[*protocol.CounterSync](p)
	p.complain(protocol.CodeMalformed, "type", "COUNTER_SYNC", "name", "b")
	require.ErrorIs(t, await(t, b), client.ErrRefused)
	a2 := add("a")
	third := next[*protocol.CounterSync](p)
	p.complain(protocol.CodeMalformed, "type", "COUNTER_SYNC", "name", "a", "requestId", third.RequestID)
	require.ErrorIs(t, await(t, a2), client.ErrRefused)
	// What may have been added is added again under its id.
	p.complain(protocol.CodeUnavailable, "type", "COUNTER_SYNC", "name", "a")
	require.Equal(t, first, next[*protocol.CounterSync](p))
	p.cut()
	p = f.accept()
	require.Equal(t, first, next[*protocol.CounterSync](p))
	p.send(&protocol.CounterResponse{Name: "b", RequestID: second.RequestID})
	total := 5.0
	p.send(&protocol.CounterResponse{Name: "a", RequestID: first.RequestID, Value: &total})
	require.NoError(t, await(t, a))

	ctx, cancel := context.WithCancel(within(t))
	done := begin(func() error { _, err := c.Counter("a").Add(ctx, 1); return err })
	next[*protocol.CounterSync](p)
	p.complain(protocol.CodeUnavailable, "type", "COUNTER_SYNC", "name", "a")
	next[*protocol.CounterSync](p)
	cancel()
	err := await(t, done)
	require.ErrorIs(t, err, client.ErrUnknown)
	require.False(t, errors.Is(err, client.ErrUnavailable))
}

func TestAWatchShowsTheLatestTotal(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	state := func(n float64) protocol.CounterState {
		return protocol.CounterState{Positive: map[string]float64{"x": n + 1}, Negative: map[string]float64{"y": 1}}
	}
	var w *client.CounterWatch
	done := begin(func() (err error) { w, err = c.Counter("n").Watch(within(t)); return err })
	next[*protocol.CounterRequest](p)
	p.send(&protocol.CounterResponse{Name: "n", State: state(1)})
	require.NoError(t, await(t, done))
	for n := 1.0; n < 100; n++ {
		p.send(&protocol.CounterUpdate{Name: "n", State: state(n)})
	}
	require.NoError(t, c.Publish(within(t), "t", nil)) // all before it was handled
	next[*protocol.TopicPub](p)
	total, err := w.Next(within(t))
	require.NoError(t, err)
	require.InDelta(t, 99, total, 0)
	p.cut()
	p = f.accept()
	next[*protocol.CounterRequest](p)
	p.send(&protocol.CounterResponse{Name: "n", State: state(99)})
	require.NoError(t, c.Publish(within(t), "t", nil))
	next[*protocol.TopicPub](p)
	brief, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = w.Next(brief)
	require.ErrorIs(t, err, context.DeadlineExceeded, "it is no news")
	p.send(&protocol.CounterUpdate{Name: "n", State: state(100)})
	total, err = w.Next(within(t))
	require.NoError(t, err)
	require.InDelta(t, 100, total, 0)
	w.Close()
	_, err = w.Next(within(t))
	require.ErrorIs(t, err, client.ErrClosed)
}

func TestAWatchDoesNotGoBack(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	state := func(x, y float64) protocol.CounterState {
		return protocol.CounterState{Positive: map[string]float64{"x": x}, Negative: map[string]float64{"y": y}}
	}
	var w *client.CounterWatch
	done := begin(func() (err error) { w, err = c.Counter("n").Watch(within(t)); return err })
	next[*protocol.CounterRequest](p)
	p.send(&protocol.CounterResponse{Name: "n", State: state(5, 1)})
	require.NoError(t, await(t, done))
	shows := func(want float64) {
		t.Helper()
		require.NoError(t, c.Publish(within(t), "t", nil)) // all before it was handled
		next[*protocol.TopicPub](p)
		total, err := w.Next(within(t))
		require.NoError(t, err)
		require.InDelta(t, want, total, 0)
	}
	shows(4)
	// What others are shown may be read before an answer and come behind it.
	p.send(&protocol.CounterUpdate{Name: "n", State: state(1, 1)})
	p.send(&protocol.CounterUpdate{Name: "n", State: state(5, 2)})
	p.send(&protocol.CounterUpdate{Name: "n", State: state(1, 0)})
	shows(3)
	// What is read or raised in passing takes none of the places that the server has for counters
	// which a connection follows.
	value := begin(func() error { _, err := c.Counter("n").Value(within(t)); return err })
	require.Equal(t, &protocol.CounterRequest{Name: "n", Once: true}, next[*protocol.CounterRequest](p))
	p.send(&protocol.CounterResponse{Name: "n", State: state(5, 2)})
	require.NoError(t, await(t, value))
	raised := begin(func() error { _, err := c.Counter("n").Add(within(t), 1); return err })
	addition := next[*protocol.CounterSync](p)
	require.True(t, addition.Once)
	p.send(&protocol.CounterResponse{Name: "n", State: state(5, 2), RequestID: addition.RequestID})
	require.NoError(t, await(t, raised))
	// A cluster that was restored has less, and takes new connections.
	p.cut()
	p = f.accept()
	next[*protocol.CounterRequest](p)
	p.send(&protocol.CounterResponse{Name: "n", State: state(2, 0)})
	shows(2)
	w.Close()
	require.Equal(t, &protocol.CounterRequest{Name: "n", Unfollow: true}, next[*protocol.CounterRequest](p))
}

func TestSetsReadTheirOwnKey(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	var got []client.Element
	done := begin(func() (err error) { got, err = c.Set("s").Get(within(t), "k"); return err })
	require.Equal(t, []string{"k"}, next[*protocol.ORMapDiffRequest](p).Keys)
	at := protocol.Timestamp{Millis: 1000, NodeID: "n"}
	p.send(&protocol.ORMapDiffResponse{MapName: "s"})
	p.send(&protocol.ORMapDiffResponse{MapName: "s", Entries: []protocol.OREntry{{Key: "other"}}})
	p.send(&protocol.ORMapDiffResponse{MapName: "s", Entries: []protocol.OREntry{{Key: "k", Records: []protocol.ORRecord{
		{Tag: "1", Timestamp: at, Value: msgp.AppendInt(nil, 1)}, {Tag: "2", Timestamp: at, TTLMillis: 1},
	}}}})
	require.NoError(t, await(t, done))
	require.Equal(t, []client.Element{{Tag: "1", Value: client.Value(msgp.AppendInt(nil, 1))}}, got, "the other one has expired")
}
