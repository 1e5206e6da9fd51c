package harness

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// Query is a live query of a Client.
type Query struct {
	client *Client
	// ready is closed when the first answer has come, or an error.
	ready chan struct{}

	// The fields below are protected by Client.mu.
	answered bool
	err      error
	rows     []protocol.QueryRow
	more     bool
	updates  []*protocol.QueryUpdate
}

// Subscribe asks for all records of a map and follows their changes.
func (c *Client) Subscribe(ctx context.Context, mapName string) (*Query, error) {
	q := &Query{client: c, ready: make(chan struct{})}
	c.mu.Lock()
	id := "q" + strconv.Itoa(len(c.queries)+1)
	c.queries[id] = q
	c.mu.Unlock()
	if err := c.Send(ctx, &protocol.QuerySub{QueryID: id, MapName: mapName}); err != nil {
		return nil, err
	}
	select {
	case <-q.ready:
	case <-c.gone:
		return nil, errors.New("connection ended before the answer")
	case <-ctx.Done():
		return nil, fmt.Errorf("query of %s: %w", mapName, ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.err == nil && q.more {
		q.err = errors.New("answer is not complete")
	}
	return q, q.err
}

// Rows are the rows of the first answer, by key. The values are MsgPack.
func (q *Query) Rows() map[string]msgp.Raw {
	q.client.mu.Lock()
	defer q.client.mu.Unlock()
	rows := make(map[string]msgp.Raw, len(q.rows))
	for _, r := range q.rows {
		rows[r.Key] = r.Value
	}
	return rows
}

// Updates are the changes since, in order.
func (q *Query) Updates() []*protocol.QueryUpdate {
	q.client.mu.Lock()
	defer q.client.mu.Unlock()
	return append([]*protocol.QueryUpdate(nil), q.updates...)
}

// Current is the result now: the first answer with all changes made to it.
func (q *Query) Current() map[string]msgp.Raw {
	rows := q.Rows()
	for _, u := range q.Updates() {
		if u.ChangeType == protocol.ChangeLeave {
			delete(rows, u.Key)
		} else {
			rows[u.Key] = u.Value
		}
	}
	return rows
}

func (q *Query) failLocked(err error) {
	if !q.answered {
		q.answered, q.err = true, err
		close(q.ready)
	}
}

func (c *Client) responseLocked(m *protocol.QueryResp) {
	q := c.queries[m.QueryID]
	if q == nil || q.answered {
		c.problemLocked("%s: unexpected QUERY_RESP of %q", c.URL, m.QueryID)
		return
	}
	q.answered, q.rows, q.more = true, m.Results, m.HasMore
	if m.Error != "" {
		q.err = errors.New(m.Error)
	}
	close(q.ready)
}

func (c *Client) updateLocked(m *protocol.QueryUpdate) {
	q := c.queries[m.QueryID]
	if q == nil || !q.answered || q.err != nil {
		c.problemLocked("%s: QUERY_UPDATE of %q before its answer", c.URL, m.QueryID)
		return
	}
	q.updates = append(q.updates, m)
}
