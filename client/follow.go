package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// ChangeType says what a Change is.
type ChangeType string

// The types of changes.
const (
	// Snapshot: Records are all rows now, in the place of all that was shown before.
	Snapshot ChangeType = "SNAPSHOT"
	// Enter: the record Key belongs to the result now, with Value.
	Enter = ChangeType(protocol.ChangeEnter)
	// Update: the record Key, which belongs to it, has another Value.
	Update = ChangeType(protocol.ChangeUpdate)
	// Leave: the record Key does not belong to it any more.
	Leave = ChangeType(protocol.ChangeLeave)
)

// Change is one step of a Follow.
type Change struct {
	Type ChangeType
	// Key and Value are those of the record; Value is empty for Leave.
	Key   string
	Value Value
	// Records and More are set for a Snapshot. More says that there are rows which were left
	// out because there are too many.
	Records []Record
	More    bool
}

// Follow is a live query. It begins with a Snapshot, and another one comes after each
// reconnection and whenever the consumer fell behind, so that nothing is missed silently.
type Follow struct {
	client  *Client
	mapName string
	query   Query
	object  msgp.Raw
	read    string
	limit   int
	in      inbox[Change]

	// The fields below are protected by Client.mu.

	// id is that of the present subscription; empty while the consumer is behind.
	id string
	// begun: the rows have come, changes may follow.
	begun bool
}

// Follow answers a query and shows how its result changes. Changes that this Client makes
// itself are not shown: the protocol has no echo. It returns when the first rows are there.
// Close it when it is not needed any more.
func (m *Map) Follow(ctx context.Context, q Query, opts ...ReadOption) (*Follow, error) {
	object, err := q.encode()
	if err != nil {
		return nil, err
	}
	c := m.client
	f := &Follow{
		client: c, mapName: m.name, query: q, object: object, read: readOptionsOf(opts).consistency(), limit: c.cfg.StreamBuffer, in: newInbox[Change](),
	}
	c.mu.Lock()
	if err := c.final; err != nil {
		c.mu.Unlock()
		return nil, err
	}
	f.renewLocked()
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.OperationTimeout)
	defer cancel()
	first, err := f.in.next(ctx, c, nil)
	if err != nil {
		f.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return nil, fmt.Errorf("follow map %q: %w", m.name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.in.items = append([]Change{first}, f.in.items...)
	f.in.wakeUp()
	return f, nil
}

// Next waits for the next change. When the Follow has ended the error says why: ErrRefused,
// ErrClosed.
func (f *Follow) Next(ctx context.Context) (Change, error) {
	return f.in.next(ctx, f.client, func() {
		if f.id == "" {
			f.renewLocked()
		}
	})
}

// All iterates over the changes until the Follow or ctx ends; the error that ended it comes
// last.
func (f *Follow) All(ctx context.Context) iter.Seq2[Change, error] { return all(ctx, f.Next) }

// all iterates over what next returns, up to and with the first error.
func all[T any](ctx context.Context, next func(context.Context) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			item, err := next(ctx)
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the Follow. Calling it again does nothing.
func (f *Follow) Close() {
	f.client.mu.Lock()
	defer f.client.mu.Unlock()
	f.dropLocked()
	f.in.items = nil
	f.in.endLocked(ErrClosed)
}

// renewLocked subscribes under a new id, so that what still comes for the old one is told
// apart.
func (f *Follow) renewLocked() {
	f.id, _ = f.client.newID()
	f.client.follows[f.id] = f
	if f.client.conn != nil {
		f.subscribeLocked(f.client.conn)
	}
}

func (f *Follow) subscribeLocked(cn *conn) {
	f.begun = false
	cn.postLocked(&protocol.QuerySub{QueryID: f.id, MapName: f.mapName, Query: f.object, Fields: f.query.Fields, Consistency: f.read})
}

// dropLocked ends the present subscription.
func (f *Follow) dropLocked() {
	if f.id == "" {
		return
	}
	delete(f.client.follows, f.id)
	if f.client.conn != nil {
		f.client.conn.postLocked(&protocol.QueryUnsub{QueryID: f.id})
	}
	f.id, f.begun = "", false
}

// beginLocked takes the rows of the query, which replace all that waits to be consumed.
func (f *Follow) beginLocked(m *protocol.QueryResp) {
	f.begun = true
	f.in.items = []Change{{Type: Snapshot, Records: records(m), More: m.HasMore}}
	f.in.wakeUp()
}

// changedLocked takes a change of a live query. A consumer that is too far behind misses the
// changes and is shown the rows anew, when it asks again.
func (c *Client) changedLocked(m *protocol.QueryUpdate) {
	f := c.follows[m.QueryID]
	if f == nil || !f.begun {
		return
	}
	if len(f.in.items) >= f.limit {
		f.in.items = nil
		f.dropLocked()
		f.in.wakeUp()
		return
	}
	f.in.putLocked(Change{Type: ChangeType(m.ChangeType), Key: m.Key, Value: Value(m.Value)})
}

// followFailedLocked takes a refusal. What the server cannot do now is asked for again.
func (c *Client) followFailedLocked(f *Follow, code protocol.Code, reason string) {
	if !code.Temporary() {
		delete(c.follows, f.id)
		f.id = ""
		f.in.endLocked(refused(code, reason))
		return
	}
	id := f.id
	time.AfterFunc(retryPause, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if f.id == id && !f.begun && c.conn != nil {
			f.subscribeLocked(c.conn)
		}
	})
}
