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
	// partial: the answer need not be the whole map, and may be replaced by another one.
	partial bool

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
	return q, c.subscribe(ctx, q, &protocol.QuerySub{MapName: mapName})
}

// SubscribeTo asks for the rows of a query object and follows them. Its client may be shown
// all of them anew.
func (c *Client) SubscribeTo(ctx context.Context, mapName string, object msgp.Raw) (*Query, error) {
	q := &Query{client: c, ready: make(chan struct{}), partial: true}
	return q, c.subscribe(ctx, q, &protocol.QuerySub{MapName: mapName, Query: object})
}

// subscribe sends m for q and waits for the answer.
func (c *Client) subscribe(ctx context.Context, q *Query, m *protocol.QuerySub) error {
	c.mu.Lock()
	m.QueryID = "q" + strconv.Itoa(len(c.queries)+1)
	c.queries[m.QueryID] = q
	c.mu.Unlock()
	if err := c.Send(ctx, m); err != nil {
		return err
	}
	select {
	case <-q.ready:
	case <-c.gone:
		return errors.New("connection ended before the answer")
	case <-ctx.Done():
		return fmt.Errorf("query of %s: %w", m.MapName, ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.err == nil && q.more && !q.partial {
		q.err = errors.New("answer is not complete")
	}
	return q.err
}

// Rows are the rows of the latest answer, by key. The values are MsgPack.
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

// Current is the result now: the latest answer with all changes made to it.
func (q *Query) Current() map[string]msgp.Raw {
	q.client.mu.Lock()
	answer, updates := q.rows, q.updates
	q.client.mu.Unlock()
	rows := make(map[string]msgp.Raw, len(answer))
	for _, r := range answer {
		rows[r.Key] = r.Value
	}
	for _, u := range updates {
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
	if q == nil || q.answered && !q.partial {
		c.problemLocked("%s: unexpected QUERY_RESP of %q", c.URL, m.QueryID)
		return
	}
	again := q.answered
	q.answered, q.rows, q.more, q.updates = true, m.Results, m.HasMore, nil
	if m.Error != "" {
		q.err = errors.New(m.Error)
	}
	if !again {
		close(q.ready)
	}
}

func (c *Client) updateLocked(m *protocol.QueryUpdate) {
	q := c.queries[m.QueryID]
	if q == nil || !q.answered || q.err != nil {
		c.problemLocked("%s: QUERY_UPDATE of %q before its answer", c.URL, m.QueryID)
		return
	}
	q.updates = append(q.updates, m)
}
