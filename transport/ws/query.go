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
)

// query is one live query of a connection and the sink of its subscription.
//
// Clients expect two streams from it: QUERY_UPDATE for the query, and SERVER_EVENT
// once per map for all queries on it. The first query of a map carries the second
// stream. When it ends before the others it stays on for that stream alone, because
// their subscriptions are elsewhere in the log and a handover would leave a gap.
type query struct {
	conn    *conn
	id      string
	mapName string
	// linearizable: its rows show all that was acknowledged to anyone before it came.
	linearizable bool
	// ctx ends with the query, which may be before its connection.
	ctx    context.Context
	cancel context.CancelFunc
	// gone: unsubscribed or replaced, there are no more updates to send.
	gone atomic.Bool
	// events: this query carries the SERVER_EVENT stream of its map. Set before
	// the subscription is released, never changed after.
	events bool
	// sub is nil until subscribed, released says that its changes are on their way; both
	// protected by queries.mu.
	sub      *partitions.Subscription
	released bool
}

// queries are the live queries of one connection. The zero value is ready to use.
type queries struct {
	// mu protects the fields below. Subscriptions and the outbound queue may be
	// locked under it, never the other way round.
	mu   sync.Mutex
	byID map[string]*query
	maps map[string]*mapQueries
	// watched is the number of maps that are watched.
	watched int
	// resynced is when the client was last told anew what it had missed.
	resynced time.Time
	closed   bool
}

// mapQueries are the queries of a connection on one map.
type mapQueries struct {
	count  int    // queries that are not gone
	events *query // carries the SERVER_EVENT stream; nil until a query is live
	// watched: the client syncs the map, so that the stream goes on without queries.
	watched bool
}

// receiveQuerySub handles QUERY_SUB.
func (c *conn) receiveQuerySub(m *protocol.QuerySub, size int) {
	if r := judge.Map(m.MapName); r.Refused() {
		c.reply(failureOf(m, r.Code, r.Reason))
		return
	}
	if !m.IsPlain() {
		c.reply(failureOf(m, protocol.CodeNotImplemented, judge.NotImplemented+"query with conditions, order, limit or fields"))
		return
	}
	if m.Consistency != "" && m.Consistency != protocol.ConsistencyLinearizable {
		c.reply(failureOf(m, protocol.CodeMalformed, "consistency is unknown"))
		return
	}
	q := &query{conn: c, id: m.QueryID, mapName: m.MapName, linearizable: m.Consistency != ""}
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
	answer := failureOf(m, protocol.CodeInternal, "query failed, nothing was subscribed")
	outcome := "failed"
	for _, retry := range []error{partitions.ErrUnavailable, partitions.ErrIncomplete, context.DeadlineExceeded} {
		if errors.Is(err, retry) {
			answer.Code, answer.Message = protocol.CodeUnavailable, "query cannot be answered now, nothing was subscribed"
			outcome = "unavailable"
		}
	}
	c.srv.metrics.operations(serviceQuery, outcome, 1, time.Since(started))
	c.reply(answer)
}

// openQuery subscribes, reads, answers and releases the updates, in this order: the
// client gets everything that happens after the rows it was shown, and nothing
// before.
func (c *conn) openQuery(q *query) error {
	if q.linearizable {
		if err := c.backend.Barrier(q.ctx, c.session); err != nil {
			return err
		}
	}
	sub, err := c.backend.Subscribe(q.ctx, c.session, q.mapName, q)
	if err != nil {
		return err
	}
	if !c.queries.subscribed(q, sub) {
		sub.Close()
		return errClosed
	}
	resp, err := c.snapshot(q.ctx, q, sub)
	if err != nil {
		return err
	}
	return c.queries.release(q, resp)
}

// snapshot is the QUERY_RESP with as many rows as its bounds allow.
func (c *conn) snapshot(ctx context.Context, q *query, sub *partitions.Subscription) (*protocol.QueryResp, error) {
	rows, more, err := c.backend.Snapshot(ctx, c.session, sub, c.srv.cfg.MaxRows, c.srv.cfg.MaxResponseBytes)
	if err != nil {
		return nil, err
	}
	resp := &protocol.QueryResp{QueryID: q.id, Results: make([]protocol.QueryRow, len(rows)), HasMore: more, CursorStatus: protocol.CursorNone}
	for i := range rows {
		resp.Results[i] = protocol.QueryRow{Key: rows[i].Key, Value: rows[i].Record.Value}
	}
	return resp, nil
}

// Event implements partitions.Sink.
func (q *query) Event(e *partitions.Event) bool {
	err := q.conn.out.event(q, e)
	if errors.Is(err, errSlow) {
		q.conn.missed(q)
	}
	return err == nil
}

// Gap implements partitions.Sink.
func (q *query) Gap() { q.conn.missed(q) }

// write sends what an event means for q: the stored record for the map, and the
// movement of its row for the query.
func (q *query) write(w *eventWriter, e *partitions.Event) error {
	if e.Added != nil || e.Removed != "" {
		return q.writeSet(w, e)
	}
	if q.events {
		w.record = e.Record
		w.event = protocol.ServerEvent{MapName: e.Map, EventType: protocol.OpPut, Key: e.Key, Record: &w.record}
		if e.Record.IsTombstone() {
			w.event.EventType = protocol.OpRemove
		}
		if err := w.message(&w.event); err != nil {
			return err
		}
	}
	change, ok := changeOf(e, q.conn.srv.deps.Now())
	if !ok || q.gone.Load() {
		return nil
	}
	w.update = protocol.QueryUpdate{QueryID: q.id, Key: e.Key, ChangeType: change}
	if change != protocol.ChangeLeave {
		w.update.Value = e.Record.Value
	}
	return w.message(&w.update)
}

// writeSet sends the change of an observed-remove map, whose keys are never rows.
func (q *query) writeSet(w *eventWriter, e *partitions.Event) error {
	if !q.events {
		return nil
	}
	w.event = protocol.ServerEvent{MapName: e.Map, EventType: protocol.OpORRemove, Key: e.Key, ORTag: e.Removed}
	if e.Added != nil {
		w.event.EventType, w.event.ORRecord, w.event.ORTag = protocol.OpORAdd, e.Added, e.Added.Tag
	}
	return w.message(&w.event)
}

// changeOf is how the row of an event moved in a query for all rows; ok is false if
// it was not there and still is not.
func changeOf(e *partitions.Event, now int64) (change protocol.ChangeType, ok bool) {
	live := !e.Record.IsTombstone() && !e.Record.Expired(now)
	switch {
	case live && e.Existed:
		return protocol.ChangeUpdate, true
	case live:
		return protocol.ChangeEnter, true
	case e.Existed:
		return protocol.ChangeLeave, true
	default:
		return "", false
	}
}

// add registers q in place of an older query with its id, and reports whether there
// was room.
func (s *queries) add(q *query, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byID[q.id]
	if s.closed || old == nil && len(s.byID) >= limit {
		return false
	}
	on := s.maps[q.mapName]
	if on == nil {
		on = s.enterLocked(q.mapName)
	}
	on.count++ // before the old one leaves, so that the map's event stream goes on
	if old != nil {
		s.removeLocked(old)
	}
	s.byID[q.id] = q
	return true
}

// subscribed notes the subscription of q; false means that q is gone.
func (s *queries) subscribed(q *query, sub *partitions.Subscription) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.gone.Load() {
		return false
	}
	q.sub = sub
	return true
}

// release queues the response of q and lets its updates follow. It holds s.mu all
// the while, so that a query that is replaced meanwhile either answers before its
// successor or not at all.
func (s *queries) release(q *query, resp *protocol.QueryResp) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.gone.Load() {
		return errClosed
	}
	q.conn.reply(resp)
	if on := s.maps[q.mapName]; on.events == nil {
		on.events, q.events = q, true
	}
	q.sub.Release()
	q.released = true
	q.cancel()
	return nil
}

// remove ends the query with an id, if there is one.
func (s *queries) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.byID[id]; q != nil {
		s.removeLocked(q)
	}
}

// drop ends q unless it is gone already.
func (s *queries) drop(q *query) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !q.gone.Load() {
		s.removeLocked(q)
	}
}

func (s *queries) removeLocked(q *query) {
	q.gone.Store(true)
	q.cancel()
	delete(s.byID, q.id)
	on := s.maps[q.mapName]
	on.count--
	if q.sub != nil && on.events != q {
		q.sub.Close()
	}
	if on.count > 0 || on.watched && !s.closed {
		return
	}
	s.forgetLocked(q.mapName)
}

// forgetLocked ends the SERVER_EVENT stream of a map.
func (s *queries) forgetLocked(mapName string) {
	on := s.maps[mapName]
	delete(s.maps, mapName)
	if on.events != nil {
		on.events.sub.Close()
	}
}

// watch starts the SERVER_EVENT stream of a map unless there is one, and keeps it for
// the life of the connection. It reports whether there was room for one more map.
func (s *queries) watch(c *conn, mapName string, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return true // its client hears nothing any more
	}
	on := s.maps[mapName]
	switch {
	case on != nil && on.watched:
		return true
	case s.watched >= limit:
		return false
	case on == nil:
		on = s.enterLocked(mapName)
	}
	on.watched = true
	s.watched++
	if on.events == nil {
		on.events = &query{conn: c, mapName: mapName, events: true, released: true}
		on.events.gone.Store(true) // it has no updates of its own
		on.events.sub = c.backend.Watch(c.session, mapName, on.events)
	}
	return true
}

// enterLocked makes the entry of a map.
func (s *queries) enterLocked(mapName string) *mapQueries {
	if s.maps == nil {
		s.byID, s.maps = map[string]*query{}, map[string]*mapQueries{}
	}
	on := &mapQueries{}
	s.maps[mapName] = on
	return on
}

// closeAll ends every query; none is added any more.
func (s *queries) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, q := range s.byID {
		s.removeLocked(q)
	}
	for mapName := range s.maps {
		s.forgetLocked(mapName)
	}
}
