package ws

import (
	"context"
	"errors"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
)

// Event implements partitions.Sink.
func (q *query) Event(e *partitions.Event, own bool) bool {
	err := q.conn.out.event(item{query: q, event: e, own: own})
	if errors.Is(err, errSlow) {
		q.conn.missed(q)
	}
	return err == nil
}

// Gap implements partitions.Sink.
func (q *query) Gap() { q.conn.missed(q) }

// write sends what an item means for q. A change is the stored record for the map, and the
// movement of rows for the query. It runs in the goroutine that writes, so it neither
// takes queries.mu nor waits for room in the queue: both may wait for it.
func (q *query) write(w *eventWriter, it *item) error {
	switch {
	case it.view != nil:
		q.view = it.view
		return nil
	case it.answer != nil:
		if q.view == nil || q.view != it.filled {
			return nil // the client is, or was, shown everything anew
		}
		changes, refill, err := q.view.Refill(it.answer, q.conn.srv.deps.Now(), w.changes[:0])
		return q.show(w, changes, refill, err)
	}
	if q.events && !it.own && q.on.sent != it.event.Seq {
		q.on.sent = it.event.Seq
		if !q.conn.mayHear(q.mapName, it.event) {
			return q.follow(w, it)
		}
		if err := w.message(w.serverEvent(it.event)); err != nil {
			return err
		}
	}
	return q.follow(w, it)
}

// follow sends what a change means for the rows of q.
func (q *query) follow(w *eventWriter, it *item) error {
	if q.view == nil || q.gone.Load() {
		return nil
	}
	changes, refill, err := q.view.Apply(it.event, it.own, q.conn.srv.deps.Now(), w.changes[:0])
	return q.show(w, changes, refill, err)
}

// serverEvent is a change as the clients of its map see it, until the next call.
func (w *eventWriter) serverEvent(e *partitions.Event) *protocol.ServerEvent {
	w.event = protocol.ServerEvent{MapName: e.Map, Key: e.Key}
	switch {
	case e.Added != nil:
		w.event.EventType, w.event.ORRecord, w.event.ORTag = protocol.OpORAdd, e.Added, e.Added.Tag
	case e.Removed != "":
		w.event.EventType, w.event.ORTag = protocol.OpORRemove, e.Removed
	default:
		w.record = e.Record
		w.event.EventType, w.event.Record = protocol.OpPut, &w.record
		if e.Record.IsTombstone() {
			w.event.EventType = protocol.OpRemove
		}
	}
	return &w.event
}

// show sends the movements of rows, and sees to what the view of q needs.
func (q *query) show(w *eventWriter, changes []partitions.Change, refill bool, err error) error {
	defer clear(changes)
	w.changes = changes
	for i := range changes {
		if q.gone.Load() {
			return nil
		}
		w.update = protocol.QueryUpdate{QueryID: q.id, Key: changes[i].Key, ChangeType: changes[i].Type}
		if changes[i].Type != protocol.ChangeLeave {
			w.update.Value = q.asked.Project(changes[i].Value)
		}
		if err := w.message(&w.update); err != nil {
			return err
		}
	}
	if err == nil {
		err = q.recount()
	}
	switch {
	case err != nil:
		q.view = nil
		return q.lost(w, err)
	case refill:
		q.refill()
	}
	return nil
}

// recountBytes is by how much a window may grow or shrink without being counted anew.
const recountBytes = 32 << 10

// recount has the window of q count for what it has become.
func (q *query) recount() error {
	size, counted := int64(q.view.Size()), q.reserved.Load()
	if size > counted+recountBytes || size < counted-recountBytes {
		if !q.reserve(size) {
			return errWindows
		}
	}
	return nil
}

// lost goes on after a change that the view of q could not take.
func (q *query) lost(w *eventWriter, err error) error {
	c := q.conn
	r := judge.QueryFailure(err)
	if errors.Is(err, errWindows) {
		r = judge.Refusal{Code: protocol.CodeOverloaded, Reason: err.Error()}
	}
	if !r.Refused() {
		c.srv.workers.Go(func() { c.resync(q) })
		return nil
	}
	c.srv.workers.Go(func() { c.queries.drop(q) })
	return w.message(failureOf(&protocol.QuerySub{QueryID: q.id}, r.Code, r.Reason+"; the query has ended"))
}

// refill reads the first rows of q again, because rows that are not known came into its
// window, and queues them behind the changes so far.
func (q *query) refill() {
	c, view, limit := q.conn, q.view, q.view.Limit()
	c.srv.workers.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.srv.cfg.OperationTimeout)
		defer cancel()
		err := c.readAgain(ctx, q, view, limit)
		switch {
		case err == nil || q.gone.Load() || c.ctx.Err() != nil || errors.Is(err, errClosed):
		case errors.Is(err, errSlow):
			c.slow()
		default:
			c.srv.log.Debug("window could not be read", "conn", c.id, "map", q.mapName, "err", err)
			c.end(closeFlushed, protocol.CloseRetry, reasonGap)
		}
	})
}

func (c *conn) readAgain(ctx context.Context, q *query, view *partitions.View, limit int) error {
	done, err := c.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	answer, err := c.answerQuery(ctx, q, limit)
	if err != nil {
		return err
	}
	done()
	return c.out.putItem(item{query: q, answer: answer, filled: view})
}
