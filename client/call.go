package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/protocol"
)

// retryPause is how long a request waits that the server could not serve at the time.
const retryPause = 100 * time.Millisecond

// call is one request. The fields above done never change.
type call struct {
	id   string
	seq  uint64
	kind protocol.Kind
	// name is the lock, counter, topic, map or key that the request is about.
	name string
	// msg is what is sent, but for an operation, which travels with others.
	msg protocol.Message
	op  *protocol.ClientOp
	// again: it is sent again on the next connection, and if the server cannot serve it now.
	// Repeats of such a request do no harm.
	again bool
	// changes: it may change something, so that it can end with ErrUnknown.
	changes bool
	// barrier: a heartbeat is sent behind it, whose answer says that it was taken.
	barrier bool
	// waits: it takes none of the places for requests in progress, because what ends it may
	// need one.
	waits bool
	// renews: it is a request for a lock that is held.
	renews bool
	// resumes: it subscribes anew on a new connection, and nobody waits for it.
	resumes bool
	// wants is the lock that a grant makes, nil if it makes none.
	wants *Lock
	done  chan struct{}

	// The fields below are protected by Client.mu.

	// conn is the connection on which it waits for an answer, nil if it is not sent.
	conn   *conn
	queued bool
	// doubt: an earlier attempt ended without an answer.
	doubt   bool
	settled bool
	answer  protocol.Message
	level   Level
	err     error
	// last is why it is not answered yet, nil if nothing came in the way.
	last error
}

// newCall returns a call about a message that msg makes for its id.
func (c *Client) newCall(kind protocol.Kind, name string, msg func(id string) protocol.Message) *call {
	id, seq := c.newID()
	k := &call{id: id, seq: seq, kind: kind, name: name, done: make(chan struct{})}
	if msg != nil {
		k.msg = msg(id)
	}
	return k
}

// do sends a call and waits for its answer, no longer than the operation timeout.
func (c *Client) do(ctx context.Context, k *call) (protocol.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.OperationTimeout)
	defer cancel()
	return c.await(ctx, k)
}

// await sends a call and waits for its answer.
func (c *Client) await(ctx context.Context, k *call) (protocol.Message, error) {
	if !k.waits {
		select {
		case c.slots <- struct{}{}:
			defer func() { <-c.slots }()
		case <-ctx.Done():
			return nil, k.abandoned(ctx.Err())
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, k.abandoned(err)
	}
	c.mu.Lock()
	if err := c.final; err != nil {
		c.mu.Unlock()
		return nil, err
	}
	c.calls[k.id] = k
	c.enqueueLocked(k)
	c.mu.Unlock()
	select {
	case <-k.done:
	case <-ctx.Done():
		c.mu.Lock()
		c.settleLocked(k, nil, k.abandoned(ctx.Err()))
		c.mu.Unlock()
	}
	return k.answer, k.err
}

// enqueueLocked has a call sent.
func (c *Client) enqueueLocked(k *call) {
	if k.settled || k.queued || k.conn != nil {
		return
	}
	k.queued = true
	if k.op != nil {
		c.writes = append(c.writes, k)
	} else {
		c.requests = append(c.requests, k)
	}
	if c.conn != nil {
		c.conn.wakeWriter()
	}
}

// settleLocked ends a call, unless it has ended.
func (c *Client) settleLocked(k *call, answer protocol.Message, err error) {
	if k.settled {
		return
	}
	k.settled, k.answer, k.err = true, answer, err
	delete(c.calls, k.id)
	if k.queued {
		is := func(other *call) bool { return other == k }
		c.writes, c.requests = slices.DeleteFunc(c.writes, is), slices.DeleteFunc(c.requests, is)
	}
	close(k.done)
	if k.resumes {
		c.resumedLocked(k)
	}
}

// abandoned is the error of a call that ends without an answer because of cause.
func (k *call) abandoned(cause error) error {
	ends := errors.Is(cause, ErrClosed) || errors.Is(cause, ErrRefused)
	switch unknown := k.changes && (k.doubt || k.conn != nil); {
	case unknown && ends:
		return fmt.Errorf("%w: %s", ErrUnknown, cause.Error()) // of one class only
	case unknown:
		return fmt.Errorf("%w: %w", ErrUnknown, cause)
	case ends:
		return cause
	case k.last != nil:
		return fmt.Errorf("%w: %w: %w", ErrUnavailable, cause, k.last)
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
}

// requeueLocked takes back the calls that a connection leaves unanswered: those that may be
// repeated are sent on the next one, in their order, and the others end.
func (c *Client) requeueLocked(cn *conn) {
	var left []*call
	for _, k := range c.calls {
		if k.conn == cn {
			left = append(left, k)
		}
	}
	slices.SortFunc(left, func(a, b *call) int { return cmp.Compare(a.seq, b.seq) })
	var writes, requests []*call
	for _, k := range left {
		if !k.again {
			c.settleLocked(k, nil, k.abandoned(errConnection))
			continue
		}
		k.conn, k.doubt, k.queued = nil, true, true
		if k.op != nil {
			writes = append(writes, k)
		} else {
			requests = append(requests, k)
		}
	}
	c.writes = append(writes, c.writes...)
	c.requests = append(requests, c.requests...)
	cn.frames, cn.pings = nil, nil
}

// failLocked takes an ERROR or a refusal of a call. What the server could not do at the time
// is tried again until the caller has no more time; doubtful says that it may have been done
// nevertheless.
func (c *Client) failLocked(k *call, code protocol.Code, reason string, doubtful bool) {
	if !code.Temporary() {
		err := refused(code, reason)
		if k.changes && k.doubt && (code == protocol.CodeForbidden || code == protocol.CodeStale) {
			// These depend on when the server looks; an earlier attempt may have passed.
			err = fmt.Errorf("%w: one attempt was not answered, the next one was refused: %s", ErrUnknown, reason)
		}
		c.settleLocked(k, nil, err)
		return
	}
	k.conn, k.doubt, k.last = nil, k.doubt || doubtful, fmt.Errorf("%s (%d)", reason, code)
	if !k.again {
		c.settleLocked(k, nil, k.abandoned(errNotNow))
		return
	}
	time.AfterFunc(retryPause, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.enqueueLocked(k)
	})
}
