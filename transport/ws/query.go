package ws

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
	"github.com/quorate/quorate/transport/policy"
)

// query is one live query of a connection and the sink of its subscription.
//
// Clients expect two streams from it: QUERY_UPDATE for the query, and SERVER_EVENT
// once per map for all queries on it. The first query of a map carries the second
// stream. When it ends before the others it stays on for that stream alone, because
// their subscriptions are elsewhere in the log and a handover would leave a gap.
// A query that names the value of a field carries the stream for the records that have
// it, as long as nothing else on the connection follows the whole map.
type query struct {
	conn    *conn
	id      string
	mapName string
	asked   *partitions.Query
	// after is the place behind which rows count, nil for all; cursor is where that comes
	// from.
	after  *partitions.Place
	cursor protocol.CursorStatus
	// linearizable: its rows show all that was acknowledged to anyone before it came.
	linearizable bool
	// explain: its answer says how it was found.
	explain bool
	// ctx ends with the query, which may be before its connection.
	ctx    context.Context
	cancel context.CancelFunc
	// gone: unsubscribed or replaced, there are no more updates to send.
	gone atomic.Bool
	// events: this query carries SERVER_EVENT for what its subscription is for. Set before
	// the subscription is released, never changed after.
	events bool
	// on are the queries of its map.
	on *mapQueries
	// reserved is what its window counts for, in bytes.
	reserved atomic.Int64
	// view is what the client holds; for the goroutine that writes. It is nil for a query
	// that only carries SERVER_EVENT, and while the client is shown everything anew.
	view *partitions.View
	// sub is nil until subscribed, released says that its changes are on their way, anew
	// counts how often that was begun again; all protected by queries.mu.
	sub      *partitions.Subscription
	released bool
	anew     int
}

// narrow reports whether the subscription is for some records of the map only.
func (q *query) narrow() bool { return q.asked != nil && q.asked.Interest().Narrow() }

// errWindows says that the windows of all live queries take too much memory.
var errWindows = errors.New("live queries hold too many rows")

// reserve has the window of q count for size bytes, and reports whether there was room.
func (q *query) reserve(size int64) bool {
	all := &q.conn.srv.windowBytes
	fits := all.Add(size) <= q.conn.srv.cfg.MaxWindowBytes || size == 0
	if !fits {
		all.Add(-size)
		size = 0
	}
	all.Add(-q.reserved.Swap(size))
	if size > 0 && q.gone.Load() { // it may have gone before it counted
		all.Add(-q.reserved.Swap(0))
	}
	return fits
}

// receiveQuerySub handles QUERY_SUB.
func (c *conn) receiveQuerySub(m *protocol.QuerySub, size int) {
	asked, r := judgeQuery(m)
	if r.Refused() {
		c.reply(failureOf(m, r.Code, r.Reason))
		return
	}
	q := &query{conn: c, id: m.QueryID, mapName: m.MapName, asked: asked, linearizable: m.Consistency != "", explain: m.Explain}
	q.ctx, q.cancel = context.WithTimeout(c.ctx, c.srv.cfg.OperationTimeout)
	if !c.queries.add(q, c.srv.cfg.MaxQueries) {
		q.cancel()
		c.srv.metrics.limit("queries")
		c.reply(failureOf(m, protocol.CodeOverloaded, "too many live queries on this connection"))
		return
	}
	if !c.takeSlot() {
		c.queries.drop(q)
		return
	}
	if err := c.srv.gate.enter(q.ctx, size); err != nil {
		c.leaveSlot()
		c.queries.drop(q)
		c.srv.metrics.limit("overload")
		c.reply(failureOf(m, protocol.CodeOverloaded, err.Error()))
		return
	}
	earlier := c.turns.last
	go func() {
		defer c.leaveSlot()
		defer c.srv.gate.leave(size)
		// A client takes the result for all there is, so it must not miss what the
		// client itself wrote just before.
		await(earlier)
		c.runQuery(q, m)
	}()
}

// judgeQuery decides everything about a query that needs no state.
func judgeQuery(m *protocol.QuerySub) (*partitions.Query, judge.Refusal) {
	if r := judge.Map(m.MapName); r.Refused() {
		return nil, r
	}
	if r := judge.Consistency(m.Consistency); r.Refused() {
		return nil, r
	}
	asked, err := partitions.CompileQuery(m.Query, partitions.QueryOptions{Fields: m.Fields})
	return asked, judge.QueryFailure(err)
}

// runQuery answers a query and sets its updates going.
func (c *conn) runQuery(q *query, m *protocol.QuerySub) {
	started := time.Now()
	err := c.openQuery(q)
	switch {
	case err == nil:
		c.srv.metrics.operations(serviceQuery, "ok", 1, time.Since(started))
		return
	case q.gone.Load():
		return // its client wants no answer any more
	}
	c.queries.drop(q)
	c.srv.log.Debug("query failed", "conn", c.id, "map", q.mapName, "err", err)
	outcome, answer := c.queryFailed(m, err)
	c.srv.metrics.operations(serviceQuery, outcome, 1, time.Since(started))
	c.reply(answer)
}

// queryFailed is what the client is told of a query that has no answer.
func (c *conn) queryFailed(m *protocol.QuerySub, err error) (outcome string, answer *protocol.ErrorMessage) {
	if r := judge.QueryFailure(err); r.Refused() {
		return "refused", failureOf(m, r.Code, r.Reason)
	}
	if errors.Is(err, errWindows) {
		c.srv.metrics.limit("windows")
		return "refused", failureOf(m, protocol.CodeOverloaded, err.Error())
	}
	for _, retry := range []error{partitions.ErrUnavailable, context.DeadlineExceeded} {
		if errors.Is(err, retry) {
			return "unavailable", failureOf(m, protocol.CodeUnavailable, "query cannot be answered now, nothing was subscribed")
		}
	}
	return "failed", failureOf(m, protocol.CodeInternal, "query failed, nothing was subscribed")
}

// openQuery subscribes, reads, answers and releases the updates, in this order: the
// client gets everything that happens after the rows it was shown, and nothing
// before. A cursor that cannot be used is answered, and nothing follows.
func (c *conn) openQuery(q *query) error {
	q.after, q.cursor = c.cursors().Parse(q.mapName, q.asked, c.srv.deps.Now())
	if q.cursor == protocol.CursorExpired || q.cursor == protocol.CursorInvalid {
		c.queries.refuse(q, &protocol.QueryResp{QueryID: q.id, Results: []protocol.QueryRow{}, CursorStatus: q.cursor})
		return nil
	}
	if q.linearizable {
		if err := c.backend.Barrier(q.ctx, c.session); err != nil {
			return err
		}
	}
	// Changes are held back from the subscription on, so it comes when the turn has.
	done, err := c.takeTurn(q.ctx)
	if err != nil {
		return err
	}
	defer done()
	sub, err := c.subscribe(q.ctx, q)
	if err != nil {
		return err
	}
	if !c.queries.subscribed(q, sub) {
		sub.Close()
		return errClosed
	}
	resp, view, err := c.snapshot(q.ctx, q, sub)
	if err != nil {
		return err
	}
	done()
	return c.queries.release(q, resp, view)
}

func (c *conn) cursors() judge.Cursors {
	return judge.NewCursors(c.srv.deps.Secret, c.backend.ClusterID())
}

// subscribe gathers the changes that concern q.
func (c *conn) subscribe(ctx context.Context, q *query) (*partitions.Subscription, error) {
	want := partitions.Interest{}
	if q.asked != nil {
		want.Rows, want.Own = q.asked.Interest(), q.asked.Limit() > 0 && !q.asked.Grouped()
	}
	return c.backend.Subscribe(ctx, c.session, q.mapName, want, q)
}

// snapshot reads for q: the QUERY_RESP with as many rows as its bounds allow, and what its
// client holds when it has that.
func (c *conn) snapshot(ctx context.Context, q *query, sub *partitions.Subscription) (*protocol.QueryResp, *partitions.View, error) {
	limit := q.asked.Limit()
	answer, err := c.answerQuery(ctx, q, limit)
	if err != nil {
		return nil, nil, err
	}
	answer.Cover(sub)
	view := partitions.NewView(q.asked, q.after, answer)
	if !q.reserve(int64(view.Size())) {
		return nil, nil, errWindows
	}
	resp := &protocol.QueryResp{
		QueryID: q.id, Results: make([]protocol.QueryRow, len(answer.Rows)), HasMore: answer.More, CursorStatus: q.cursor,
	}
	for i, row := range answer.Rows {
		resp.Results[i] = protocol.QueryRow{Key: row.Key, Value: q.asked.Project(row.Record.Value)}
	}
	if q.explain {
		resp.Plan = judge.Explain(&answer.Plan, c.permission().Access.Scope(policy.Read, onMap(q.mapName)) == policy.Allowed)
	}
	if last := len(answer.Rows) - 1; answer.More && limit > 0 && last >= 0 {
		resp.NextCursor = c.cursors().Cursor(q.mapName, q.asked, answer.Place(last), c.srv.deps.Now())
	}
	return resp, view, nil
}

// takeTurn waits until one more query may be read for: each holds its rows in memory. done
// ends the turn, if it has not ended; nobody waits for a client in it.
func (c *conn) takeTurn(ctx context.Context) (done func(), err error) {
	select {
	case c.srv.querySlots <- struct{}{}:
		return sync.OnceFunc(func() { <-c.srv.querySlots }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answerQuery reads the first rows of q, up to limit, in its turn.
func (c *conn) answerQuery(ctx context.Context, q *query, limit int) (*partitions.Answer, error) {
	ask := partitions.Ask{
		Map: q.mapName, Query: q.asked, After: q.after, Rows: c.srv.cfg.MaxRows, Bytes: c.srv.cfg.MaxResponseBytes,
		Visible: func(key string, value []byte) bool { return c.maySee(q.mapName, key, value) },
		Explain: q.explain,
	}
	if limit != partitions.NoLimit {
		ask.Rows, ask.Spare = min(limit, ask.Rows), partitions.Spare(limit)
	}
	if q.asked.Grouped() {
		ask.Spare = 0
	}
	return c.backend.Answer(ctx, c.session, ask)
}
