package ws

import (
	"sync"
	"time"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

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
	events *query // carries the SERVER_EVENT stream; nil while none of the queries does
	// watched: the client syncs the map, so that the stream goes on without queries.
	watched bool
	// sent is the latest change that was sent as SERVER_EVENT, by its number; for the
	// goroutine that writes.
	sent uint64
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
	s.byID[q.id], q.on = q, on
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
func (s *queries) release(q *query, resp *protocol.QueryResp, view *partitions.View) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.gone.Load() {
		return errClosed
	}
	q.conn.reply(resp)
	if on := s.maps[q.mapName]; on.events == nil {
		// A query for few records is told of no others; it does not carry the stream for
		// the queries that come after it.
		if q.events = true; !q.narrow() {
			on.events = q
		}
	}
	q.conn.out.control(item{query: q, view: view})
	q.sub.Release()
	q.released = true
	q.cancel()
	return nil
}

// refuse ends q, unless it is gone already, and queues its answer.
func (s *queries) refuse(q *query, resp *protocol.QueryResp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !q.gone.Load() {
		s.removeLocked(q)
		q.conn.reply(resp)
	}
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
	q.reserve(0)
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
		on.events = &query{conn: c, mapName: mapName, events: true, released: true, on: on}
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
