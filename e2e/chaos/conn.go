package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/e2e/model"
	"github.com/quorate/quorate/protocol"
)

// errGone: the connection ended before the answer.
var errGone = errors.New("connection has ended")

// conn is one connection. Its client asks one thing at a time, and gives the connection up
// when it does not get an answer.
type conn struct {
	*harness.Client
	node string
	// push takes what was not asked for: updates of queries and messages of topics. It is
	// called by the reader of the connection.
	push func(protocol.Message)
	host *harness.Node
	// writing is a write that waits for its verdict.
	writing sync.WaitGroup

	// The fields below belong to the client: since when a request waits for an answer, for how
	// long it may, and what is closed when it comes; nil if none waits.
	since      time.Time
	allowed    time.Duration
	unanswered <-chan struct{}

	// mu protects asked, pushing that push is called only until the client has left.
	mu, pushing sync.Mutex
	asked       *question
	muted       bool
}

// question waits for its answer.
type question struct {
	kind    protocol.Kind
	matches func(protocol.Message) bool
	answer  chan protocol.Message // holds one
	done    chan struct{}         // closed with the answer
}

func dial(ctx context.Context, n *harness.Node, device string, push func(protocol.Message)) (*conn, error) {
	c := &conn{node: n.Name, host: n, push: push}
	// How long a silence lasts is judged here, where it is known which nodes are paused.
	client, err := n.DialWith(ctx, "", harness.ClientConfig{DeviceToken: device, Take: c.take, Silence: time.Hour})
	if err != nil {
		return nil, err
	}
	c.Client = client
	return c, nil
}

// take is shown every message. Verdicts of writes are left to the harness.
func (c *conn) take(m protocol.Message) bool {
	switch m := m.(type) {
	case *protocol.OpAck, *protocol.OpRejected:
		return false
	case *protocol.ErrorMessage:
		return c.answered(func(q *question) bool { return harness.DetailsOf(m)["type"] == q.kind.String() }, m)
	}
	if c.answered(func(q *question) bool { return q.matches(m) }, m) {
		return true
	}
	c.pushing.Lock()
	defer c.pushing.Unlock()
	if c.push != nil && !c.muted {
		c.push(m)
	}
	return true
}

// mute has push called no more.
func (c *conn) mute() {
	c.pushing.Lock()
	defer c.pushing.Unlock()
	c.muted = true
}

// answered gives m to the question if it is about it.
func (c *conn) answered(about func(*question) bool, m protocol.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == nil || !about(c.asked) {
		return false
	}
	c.asked.answer <- m
	close(c.asked.done)
	c.asked = nil
	return true
}

// ask sends m and waits for the message that matches. An ERROR about m is an error.
func (c *conn) ask(ctx context.Context, m protocol.Message, matches func(protocol.Message) bool) (protocol.Message, error) {
	q := &question{kind: m.Kind(), matches: matches, answer: make(chan protocol.Message, 1), done: make(chan struct{})}
	c.since, c.allowed, c.unanswered = time.Now(), silenceTime, q.done
	if r, waits := m.(*protocol.LockRequest); waits && r.WaitMillis != nil {
		c.allowed += time.Duration(*r.WaitMillis) * time.Millisecond
	}
	c.mu.Lock()
	c.asked = q
	c.mu.Unlock()
	if err := c.Send(ctx, m); err != nil {
		return nil, fmt.Errorf("send %s: %w", m.Kind(), err)
	}
	select {
	case answer := <-q.answer:
		c.unanswered = nil
		if e, failed := answer.(*protocol.ErrorMessage); failed {
			return nil, fmt.Errorf("%s: %d %s", m.Kind(), e.Code, e.Message)
		}
		return answer, nil
	case <-c.Gone():
		return nil, errGone
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// write sends a write and waits for its verdict, for as long as patience. Without one the
// outcome is unknown, and the connection of no use any more.
func (c *conn) write(ctx context.Context, op protocol.ClientOp, patience time.Duration) model.OutcomeKind {
	done := make(chan struct{})
	var result harness.Result
	c.since, c.allowed, c.unanswered = time.Now(), silenceTime, done
	c.writing.Go(func() {
		defer close(done)
		result = c.Write(context.WithoutCancel(ctx), &protocol.OpBatch{Ops: []protocol.ClientOp{op}})
	})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		c.unanswered = nil
		return result[op.ID].Kind
	case <-timer.C:
	case <-ctx.Done():
	}
	return model.Unknown
}

// query reads a whole map. The query with this id goes on if live.
func (c *conn) query(ctx context.Context, id, mapName, consistency string, live bool) (map[string]string, error) {
	m, err := c.ask(ctx, &protocol.QuerySub{QueryID: id, MapName: mapName, Consistency: consistency}, func(m protocol.Message) bool {
		r, ok := m.(*protocol.QueryResp)
		return ok && r.QueryID == id
	})
	if err != nil {
		return nil, err
	}
	resp := m.(*protocol.QueryResp)
	if resp.Error != "" || resp.HasMore {
		return nil, fmt.Errorf("answer is not complete: %s", resp.Error)
	}
	rows := make(map[string]string, len(resp.Results))
	for _, r := range resp.Results {
		rows[r.Key] = harness.TextOf(r.Value)
	}
	if live {
		return rows, nil
	}
	return rows, c.Send(ctx, &protocol.QueryUnsub{QueryID: id})
}

// counter asks for the state of a counter, and to be told of its changes.
func (c *conn) counter(ctx context.Context, name string) (protocol.Message, error) {
	return c.ask(ctx, &protocol.CounterRequest{Name: name}, func(m protocol.Message) bool {
		r, ok := m.(*protocol.CounterResponse)
		return ok && r.RequestID == "" && r.Name == name
	})
}

// root is the root hash of a map.
func (c *conn) root(ctx context.Context, mapName string, sets bool) (uint32, error) {
	var m protocol.Message = &protocol.SyncInit{MapName: mapName}
	if sets {
		m = &protocol.ORMapSyncInit{MapName: mapName, BucketHashes: map[string]uint32{}}
	}
	var hash uint32
	_, err := c.ask(ctx, m, func(m protocol.Message) bool {
		switch m := m.(type) {
		case *protocol.SyncRespRoot:
			hash = m.RootHash
			return !sets && m.MapName == mapName
		case *protocol.ORMapSyncRespRoot:
			hash = m.RootHash
			return sets && m.MapName == mapName
		default:
			return false
		}
	})
	return hash, err
}
