package ws

import (
	"context"
	"time"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
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

// showAnew subscribes q anew and shows what it stands for.
func (c *conn) showAnew(q *query) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.srv.cfg.OperationTimeout)
	defer cancel()
	sub, err := c.backend.Subscribe(ctx, c.session, q.mapName, q)
	if err != nil {
		return err
	}
	answers, err := c.present(ctx, q, sub)
	if err != nil || !c.queries.renew(q, sub, answers) {
		sub.Close()
	}
	return err
}

// present is what the client of q is shown in place of changes.
func (c *conn) present(ctx context.Context, q *query, sub *partitions.Subscription) (answers []protocol.Message, err error) {
	if !q.gone.Load() {
		resp, err := c.snapshot(ctx, q, sub)
		if err != nil {
			return nil, err
		}
		answers = append(answers, resp)
	}
	if !q.events {
		return answers, nil
	}
	records, err := c.backend.Tree(ctx, c.session, q.mapName, merkle.Records)
	if err != nil {
		return nil, err
	}
	sets, err := c.backend.Tree(ctx, c.session, q.mapName, merkle.Sets)
	if err != nil {
		return nil, err
	}
	now := c.backend.Now()
	return append(answers,
		&protocol.SyncRespRoot{MapName: q.mapName, RootHash: records.Root(), Timestamp: now},
		&protocol.ORMapSyncRespRoot{MapName: q.mapName, RootHash: sets.Root(), Timestamp: now},
	), nil
}

// renew gives q a new subscription, whose changes follow answers. It reports whether q
// still wants one.
func (s *queries) renew(q *query, sub *partitions.Subscription, answers []protocol.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on := s.maps[q.mapName]; s.closed || on == nil || q.gone.Load() && on.events != q {
		return false
	}
	q.sub.Close()
	q.sub = sub
	for _, m := range answers {
		q.conn.reply(m)
	}
	sub.Release()
	return true
}
