package ws

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

func TestQueryAnswersLiveRowsInKeyOrder(t *testing.T) {
	f := start(t)
	f.backend.put("m", "b", record(2, testNow))
	f.backend.put("m", "a", record(1, testNow))
	f.backend.put("m", "gone", tombstone(testNow))
	expired := record(3, testNow-10_000)
	expired.TTLMillis = 5_000
	f.backend.put("m", "late", expired)
	f.backend.put("other", "z", record(9, testNow))
	c := f.dial()
	c.send(querySub("q", "m"))
	require.Equal(t, &protocol.QueryResp{
		QueryID:      "q",
		Results:      []protocol.QueryRow{{Key: "a", Value: msgp.AppendInt(nil, 1)}, {Key: "b", Value: msgp.AppendInt(nil, 2)}},
		CursorStatus: protocol.CursorNone,
	}, expect[*protocol.QueryResp](c))
	c.send(querySub("empty", "unknown map"))
	require.Empty(t, expect[*protocol.QueryResp](c).Results)
}

func TestQueryResponseIsBounded(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) { c.MaxRows, c.MaxResponseBytes = 3, 1000 })
	for i := range 4 {
		f.backend.put("rows", fmt.Sprint(i), record(i, testNow))
		big := record(i, testNow)
		big.Value = msgp.AppendBytes(nil, make([]byte, 600))
		f.backend.put("bytes", fmt.Sprint(i), big)
	}
	f.backend.put("few", "k", record(1, testNow))
	c := f.dial()
	for _, tc := range []struct {
		mapName string
		rows    int
		more    bool
	}{{"rows", 3, true}, {"bytes", 1, true}, {"few", 1, false}} {
		c.send(querySub("q", tc.mapName))
		resp := expect[*protocol.QueryResp](c)
		require.Len(t, resp.Results, tc.rows, tc.mapName)
		require.Equal(t, tc.more, resp.HasMore, tc.mapName)
	}
}

func TestChangesReachSubscribersAsEventAndUpdate(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(querySub("q", "m"))
	expect[*protocol.QueryResp](c)

	first := record(1, testNow)
	first.TTLMillis = 60_000
	expired := record(4, testNow-10_000)
	expired.TTLMillis = 1
	steps := []struct {
		name   string
		key    string
		rec    protocol.Record
		event  protocol.OpType
		change protocol.ChangeType // empty for none
	}{
		{"new", "k", first, protocol.OpPut, protocol.ChangeEnter},
		{"changed", "k", record(2, testNow+1), protocol.OpPut, protocol.ChangeUpdate},
		{"deleted", "k", tombstone(testNow + 2), protocol.OpRemove, protocol.ChangeLeave},
		{"deleted again", "k", tombstone(testNow + 3), protocol.OpRemove, ""},
		{"revived", "k", record(3, testNow+4), protocol.OpPut, protocol.ChangeEnter},
		{"born expired", "e", expired, protocol.OpPut, ""},
	}
	for _, step := range steps {
		f.backend.put("m", step.key, step.rec)
		event := expect[*protocol.ServerEvent](c)
		require.Equal(t, "m", event.MapName, step.name)
		require.Equal(t, step.key, event.Key, step.name)
		require.Equal(t, step.event, event.EventType, step.name)
		require.Equal(t, step.rec.Timestamp, event.Record.Timestamp, step.name)
		require.Equal(t, step.rec.TTLMillis, event.Record.TTLMillis, step.name)
		require.Equal(t, step.rec.IsTombstone(), event.Record.IsTombstone(), step.name)
		if step.change == "" {
			continue
		}
		update := expect[*protocol.QueryUpdate](c)
		require.Equal(t, "q", update.QueryID, step.name)
		require.Equal(t, step.key, update.Key, step.name)
		require.Equal(t, step.change, update.ChangeType, step.name)
		if step.change != protocol.ChangeLeave {
			require.Equal(t, step.rec.Value, update.Value, step.name)
		}
	}
	f.backend.put("other", "k", record(1, testNow))
	c.silent()
}

func TestWriterHearsNothingOfItsOwnWrites(t *testing.T) {
	f := start(t)
	writer, reader := f.dial(), f.dial()
	for _, c := range []*client{writer, reader} {
		c.send(querySub("q", "m"))
		expect[*protocol.QueryResp](c)
	}
	writer.send(batch(put("1", "m", "k", 1)))
	expect[*protocol.OpAck](writer)
	require.Equal(t, "k", expect[*protocol.ServerEvent](reader).Key)
	require.Equal(t, protocol.ChangeEnter, expect[*protocol.QueryUpdate](reader).ChangeType)
	writer.silent()
}

func TestServerEventComesOncePerMapHoweverManyQueries(t *testing.T) {
	f := start(t)
	c := f.dial()
	for _, id := range []string{"q1", "q2", "q3"} {
		c.send(querySub(id, "m"))
		expect[*protocol.QueryResp](c)
	}
	f.backend.put("m", "a", record(1, testNow))
	events, updates := c.collect(4)
	require.Equal(t, []string{"a"}, events)
	require.ElementsMatch(t, []string{"q1", "q2", "q3"}, updates)

	// The events go on when the query that came first ends.
	c.send(&protocol.QueryUnsub{QueryID: "q1"})
	c.silent()
	f.backend.put("m", "b", record(1, testNow))
	events, updates = c.collect(3)
	require.Equal(t, []string{"b"}, events)
	require.ElementsMatch(t, []string{"q2", "q3"}, updates)

	// They go on when queries are replaced, and stop with the last one.
	c.send(querySub("q2", "m"))
	expect[*protocol.QueryResp](c)
	c.send(&protocol.QueryUnsub{QueryID: "q3"})
	c.silent()
	f.backend.put("m", "c", record(1, testNow))
	events, updates = c.collect(2)
	require.Equal(t, []string{"c"}, events)
	require.Equal(t, []string{"q2"}, updates)
	c.send(&protocol.QueryUnsub{QueryID: "q2"})
	c.send(&protocol.QueryUnsub{QueryID: "never there"})
	c.silent()
	f.backend.put("m", "d", record(1, testNow))
	c.silent()
}

// collect reads n frames: keys of SERVER_EVENT and query ids of QUERY_UPDATE.
func (c *client) collect(n int) (events, updates []string) {
	c.t.Helper()
	for range n {
		switch m := c.next().(type) {
		case *protocol.ServerEvent:
			events = append(events, m.Key)
		case *protocol.QueryUpdate:
			updates = append(updates, m.QueryID)
		default:
			c.t.Fatalf("unexpected %s", m.Kind())
		}
	}
	return events, updates
}

func TestSameQueryIDOnAnotherMapReplaces(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(querySub("q", "old"))
	expect[*protocol.QueryResp](c)
	c.send(querySub("q", "new"))
	expect[*protocol.QueryResp](c)
	f.backend.put("old", "a", record(1, testNow))
	f.backend.put("new", "b", record(1, testNow))
	events, updates := c.collect(2)
	require.Equal(t, []string{"b"}, events)
	require.Equal(t, []string{"q"}, updates)
}

func TestSnapshotComesStrictlyBeforeUpdatesAndNothingIsLost(t *testing.T) {
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.afterRead = func() { // between the rows and the response
			b.put("m", "during", record(2, testNow))
			b.settle()
		}
		b.onSnapshot = func(context.Context) error { // between subscribing and the rows
			b.put("m", "before", record(1, testNow))
			return nil
		}
	})
	c := f.dial()
	c.send(querySub("q", "m"))
	resp := expect[*protocol.QueryResp](c)
	require.Len(t, resp.Results, 1)
	require.Equal(t, "before", resp.Results[0].Key)
	events, updates := c.collect(2)
	require.Equal(t, []string{"during"}, events)
	require.Equal(t, []string{"q"}, updates)
	c.silent()
}

func TestQuerySeesTheWritesSentBeforeIt(t *testing.T) {
	hold := make(chan struct{})
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onWrite = func(context.Context, []partitions.Op) error { <-hold; return nil }
	})
	c := f.dial()
	c.send(batch(put("1", "m", "k", 1)))
	c.send(querySub("q", "m"))
	c.silent() // the query does not keep the heartbeat waiting
	close(hold)
	expect[*protocol.OpAck](c)
	require.Len(t, expect[*protocol.QueryResp](c).Results, 1)
}

func TestUnsubscribeWhileTheSnapshotIsTakenSilencesTheQuery(t *testing.T) {
	begun := make(chan struct{})
	var once sync.Once
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onSnapshot = func(ctx context.Context) error {
			first := false
			once.Do(func() { first = true })
			if first {
				close(begun)
				<-ctx.Done()
			}
			return nil
		}
	})
	c := f.dial()
	c.send(querySub("q", "m"))
	<-begun
	c.send(&protocol.QueryUnsub{QueryID: "q"})
	c.silent()
	f.backend.put("m", "k", record(1, testNow))
	c.silent()
	c.send(querySub("q", "m"))
	require.Len(t, expect[*protocol.QueryResp](c).Results, 1)
}

func TestFailedQueriesAreToldAndNeverAnsweredEmpty(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code protocol.Code
	}{
		{fmt.Errorf("%w: no leader", partitions.ErrUnavailable), protocol.CodeUnavailable},
		{context.DeadlineExceeded, protocol.CodeUnavailable},
		{fmt.Errorf("page 7 of /var/lib/x is damaged"), protocol.CodeInternal},
	} {
		f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
			b.onSnapshot = func(context.Context) error { return tc.err }
		})
		c := f.dial()
		c.send(querySub("q7", "m"))
		e := expect[*protocol.ErrorMessage](c)
		require.Equal(t, tc.code, e.Code)
		require.NotContains(t, e.Message, "/var")
		require.Equal(t, map[string]any{"type": "QUERY_SUB", "queryId": "q7"}, detailsOf(t, e))
		f.backend.put("m", "k", record(1, testNow))
		c.silent()
	}
}

func detailsOf(t *testing.T, e *protocol.ErrorMessage) map[string]any {
	t.Helper()
	v, rest, err := msgp.ReadMapStrIntfBytes(e.Details, nil)
	require.NoError(t, err)
	require.Empty(t, rest)
	return v
}

func TestQueriesThatCannotBeAreRefused(t *testing.T) {
	f := start(t)
	c := f.dial()
	for mapName, code := range map[string]protocol.Code{"$sys/members": 403, "__Service_x": 403, "": 400, "a\x00": 400} {
		c.send(querySub("q", mapName))
		require.Equal(t, code, expect[*protocol.ErrorMessage](c).Code, mapName)
	}
	c.send(&protocol.QuerySub{QueryID: "q", MapName: "m", Consistency: "maybe"})
	require.Equal(t, protocol.CodeMalformed, expect[*protocol.ErrorMessage](c).Code)
	f.backend.put("m", "k", record(1, testNow))
	c.silent()
}

func TestLinearizableQueriesAreConfirmed(t *testing.T) {
	confirms := make(chan error, 2)
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onBarrier = func() error { return <-confirms }
	})
	c := f.dial()
	linearizable := &protocol.QuerySub{QueryID: "q", MapName: "m", Consistency: protocol.ConsistencyLinearizable}
	c.send(linearizable)
	f.backend.put("m", "k", record(1, testNow)) // acknowledged to somebody before the mark
	confirms <- nil
	require.Len(t, expect[*protocol.QueryResp](c).Results, 1)
	confirms <- partitions.ErrUnavailable
	c.send(&protocol.QuerySub{QueryID: "r", MapName: "m", Consistency: protocol.ConsistencyLinearizable})
	require.Equal(t, protocol.CodeUnavailable, expect[*protocol.ErrorMessage](c).Code)
	c.send(querySub("plain", "m"))
	expect[*protocol.QueryResp](c)
}

func TestLiveQueriesPerConnectionAreBounded(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) { c.MaxQueries = 2 })
	c := f.dial()
	for _, id := range []string{"a", "b", "a"} {
		c.send(querySub(id, "m"))
		expect[*protocol.QueryResp](c)
	}
	c.send(querySub("c", "m"))
	require.Equal(t, protocol.CodeOverloaded, expect[*protocol.ErrorMessage](c).Code)
	c.send(&protocol.QueryUnsub{QueryID: "b"})
	c.send(querySub("c", "m"))
	expect[*protocol.QueryResp](c)
}

func TestQueryIDsBelongToTheirConnection(t *testing.T) {
	f := start(t)
	a, b := f.dial(), f.dial()
	for _, c := range []*client{a, b} {
		c.send(querySub("q", "m"))
		expect[*protocol.QueryResp](c)
	}
	b.send(&protocol.QueryUnsub{QueryID: "q"})
	b.silent()
	f.backend.put("m", "k", record(1, testNow))
	events, _ := a.collect(2)
	require.Equal(t, []string{"k"}, events)
	b.silent()
}

func TestABurstOfChangesDoesNotLoseAFastClient(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(querySub("q", "m"))
	expect[*protocol.QueryResp](c)
	// More changes at once than the queue holds frames.
	const n = 2000
	changes := &fsm.Changes{Group: 1, Index: 1 << 30}
	f.backend.mu.Lock()
	f.backend.index = changes.Index
	for i := range n {
		f.backend.mergeLocked(changes, partitions.Op{Map: "m", Key: fmt.Sprint(i), Record: record(i, testNow)}, "")
	}
	f.backend.mu.Unlock()
	f.backend.hub.Publish(changes)
	for i := range n {
		require.Equal(t, fmt.Sprint(i), expect[*protocol.ServerEvent](c).Key)
		require.Equal(t, fmt.Sprint(i), expect[*protocol.QueryUpdate](c).Key)
	}
	c.silent()
}

// countingSink counts the events that reach a subscriber.
type countingSink struct {
	partitions.Sink
	events *atomic.Int32
}

func (s countingSink) Event(e *partitions.Event, own bool) bool {
	s.events.Add(1)
	return s.Sink.Event(e, own)
}

func TestSubscriptionsEndWithTheirConnection(t *testing.T) {
	var events atomic.Int32
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.wrapSink = func(s partitions.Sink) partitions.Sink { return countingSink{s, &events} }
	})
	c := f.dial()
	for _, id := range []string{"q1", "q2"} {
		c.send(querySub(id, "m"))
		expect[*protocol.QueryResp](c)
	}
	c.send(&protocol.QueryUnsub{QueryID: "q1"}) // stays on for SERVER_EVENT
	c.silent()
	f.backend.put("m", "k", record(1, testNow))
	f.backend.settle()
	require.EqualValues(t, 2, events.Load())
	require.NoError(t, c.sock.CloseNow())
	eventually(t, func() bool { return f.Connections() == 0 }, "closed")
	f.backend.put("m", "k", record(2, testNow+1))
	f.backend.settle()
	require.EqualValues(t, 2, events.Load())
}
