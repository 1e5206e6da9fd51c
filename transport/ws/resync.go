package ws

import (
	"context"
	"time"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
	"github.com/quorate/quorate/transport/policy"
)

// resyncPause is how long a client must keep up after it was told anew what it had
// missed; one that falls behind again before is disconnected.
const resyncPause = time.Minute

// missed sees to it that the client learns what q could not deliver: its subscription is
// over. It does not block.
func (c *conn) missed(q *query) {
	c.tasks.Add(1) // subscriptions end before the connection waits for its tasks
	c.srv.workers.Go(func() {
		defer c.tasks.Done()
		c.resync(q)
	})
}

// resync waits until the client has read what is queued, and then shows it the present
// state in place of the changes that it missed: the rows of the query, and the roots of
// the map's trees, from which a client finds what it lacks. A client that does not read
// within the send timeout, or falls behind again, is disconnected.
func (c *conn) resync(q *query) {
	ctx, cancel := context.WithTimeout(c.ctx, c.srv.cfg.Connection.SendTimeout)
	defer cancel()
	switch {
	case !c.queries.isReleased(q):
		// Its client waits for the first rows, which would be followed by nothing.
		c.end(closeFlushed, protocol.CloseRetry, reasonGap)
		return
	case !c.out.emptied(ctx):
		if c.ctx.Err() == nil {
			c.slow()
		}
		return
	case !c.queries.mayResync():
		c.slow()
		return
	}
	c.srv.metrics.limit("resync")
	if err := c.showAnew(q); err != nil && c.ctx.Err() == nil {
		c.srv.log.Debug("client could not be resynced", "conn", c.id, "map", q.mapName, "err", err)
		c.end(closeFlushed, protocol.CloseRetry, reasonGap)
	}
}

func (s *queries) isReleased(q *query) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return q.released
}

// mayResync reports whether the client kept up for long enough to be resynced. Queries
// that fell behind together count once.
func (s *queries) mayResync() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := time.Since(s.resynced)
	if s.resynced.IsZero() || since > resyncPause {
		s.resynced = time.Now()
		return true
	}
	return since < time.Second
}

// startAnew counts the times that q was shown anew. Only the latest of them counts: the
// subscription of an earlier one may have lost changes itself.
func (s *queries) startAnew(q *query) (round int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.anew++
	return q.anew
}

// showAnew subscribes q anew and shows what it stands for.
func (c *conn) showAnew(q *query) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.srv.cfg.OperationTimeout)
	defer cancel()
	round := c.queries.startAnew(q)
	done, err := c.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	sub, err := c.subscribe(ctx, q)
	if err != nil {
		return err
	}
	answers, view, err := c.present(ctx, q, sub)
	done()
	if err != nil || !c.queries.renew(q, round, sub, answers, view) {
		sub.Close()
	}
	return err
}

// present is what the client of q is shown in place of changes, and what it holds then.
// A query that carries SERVER_EVENT for some records only is complete with its rows.
func (c *conn) present(ctx context.Context, q *query, sub *partitions.Subscription) (answers []protocol.Message, view *partitions.View, err error) {
	if !q.gone.Load() && c.permission().Access.Scope(policy.Read, onMap(q.mapName)) == policy.Denied {
		return nil, nil, errForbidden
	}
	if !q.gone.Load() {
		var resp *protocol.QueryResp
		if resp, view, err = c.snapshot(ctx, q, sub); err != nil {
			return nil, nil, err
		}
		answers = append(answers, resp)
	}
	if !q.events || q.narrow() {
		return answers, view, nil
	}
	records, err := c.backend.Tree(ctx, c.session, q.mapName, merkle.Records)
	if err != nil {
		return nil, nil, err
	}
	sets, err := c.backend.Tree(ctx, c.session, q.mapName, merkle.Sets)
	if err != nil {
		return nil, nil, err
	}
	now := c.backend.Now()
	return append(answers,
		&protocol.SyncRespRoot{MapName: q.mapName, RootHash: records.Root(), Timestamp: now},
		&protocol.ORMapSyncRespRoot{MapName: q.mapName, RootHash: sets.Root(), Timestamp: now},
	), view, nil
}

// renew gives q a new subscription, whose changes follow answers. It reports whether q
// still wants this one.
func (s *queries) renew(q *query, round int, sub *partitions.Subscription, answers []protocol.Message, view *partitions.View) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on := s.maps[q.mapName]; s.closed || q.anew != round || on == nil || q.gone.Load() && on.events != q {
		return false
	}
	q.sub.Close()
	q.sub = sub
	for _, m := range answers {
		q.conn.reply(m)
	}
	if view != nil {
		q.conn.out.control(item{query: q, view: view})
	}
	sub.Release()
	return true
}
