package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/e2e/chaos/check"
	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/e2e/model"
	"github.com/quorate/quorate/protocol"
)

const (
	// dialTime bounds the making of a connection, askTime the wait for one answer, and
	// insistTime how long a client repeats an operation whose outcome it does not know.
	// The last is short enough that the server still knows the repeat for one.
	dialTime, askTime, insistTime = 3 * time.Second, 8 * time.Second, 15 * time.Second
	// beatTime is the pace of the heartbeats of clients that only listen.
	beatTime = 15 * time.Second
	// flaky is one in how many writes is cut off right after it was sent.
	flaky = 25
)

// caller is one client of a workload, for one goroutine. It meets another node whenever it
// has lost its connection, unless it is bound to one.
type caller struct {
	load  *load
	id    int
	name  string
	rng   *rand.Rand
	bound *harness.Node
	// push takes what was not asked for; it may be nil.
	push func(protocol.Message)
	conn *conn
	// lines are the connections of one that uses the Go client.
	lines   lines
	session int
	lastID  int
}

// connect makes sure of a connection. Without one it waits a moment and returns false.
func (c *caller) connect(ctx context.Context) bool {
	if c.conn != nil {
		select {
		case <-c.conn.Gone():
			c.hangUp()
		default:
			return true
		}
	}
	n := c.bound
	if n == nil {
		nodes := c.load.round.cluster.Nodes()
		n = nodes[c.rng.IntN(len(nodes))]
	}
	dialing, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c.session++
	cn, err := dial(dialing, n, c.name, c.push)
	if err != nil {
		c.rest(ctx, 200*time.Millisecond)
		return false
	}
	c.conn = cn
	return true
}

// hangUp ends the connection and keeps what was wrong with it.
func (c *caller) hangUp() {
	if c.conn == nil {
		return
	}
	c.leave(c.conn)
	c.conn = nil
}

// leave ends a connection.
func (c *caller) leave(cn *conn) {
	cn.Close()
	cn.writing.Wait()
	for _, p := range cn.Problems() {
		c.load.round.problem("%s: protocol: %s", c.load.name, p)
	}
}

// stay keeps the connection up until it or ctx ends. The node would end it for being idle, and
// a new one shows a follower what it was not told over the old one.
func (c *caller) stay(ctx context.Context) {
	ticker := time.NewTicker(beatTime)
	defer ticker.Stop()
	for {
		select {
		case <-c.conn.Gone():
			return
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			_ = c.conn.Send(ctx, &protocol.Ping{Timestamp: msgp.AppendInt64(nil, now.UnixMilli())}) // a failure ends the connection
		}
	}
}

// node is where the client is connected.
func (c *caller) node() string {
	if c.conn == nil {
		return ""
	}
	return c.conn.node
}

// rest spaces requests out, by d at most; it waits for nothing.
func (c *caller) rest(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(time.Duration(c.rng.Int64N(int64(d)))):
	case <-ctx.Done():
	}
}

// nextID is an id that the client has not used.
func (c *caller) nextID() string {
	c.lastID++
	return fmt.Sprint(c.lastID)
}

// value is a value that nobody else writes.
func (c *caller) value() string { return fmt.Sprint(c.id, "-", c.nextID()) }

// begin fills in what is known before an operation.
func (c *caller) begin(kind check.Kind, key, value string) check.Op {
	return check.Op{Client: c.id, Kind: kind, Key: key, Value: value, Call: c.load.round.run.now()}
}

// end notes an operation with its outcome.
func (c *caller) end(op check.Op) check.Op {
	op.Return, op.Session = c.load.round.run.now(), c.session
	if op.Node == "" {
		op.Node = c.node()
	}
	c.load.note(op)
	return op
}

// submit sends a write until its outcome is known, over other connections when it must, or
// until the client loses patience, and fills in Outcome and Node of op.
func (c *caller) submit(ctx context.Context, op *check.Op, w protocol.ClientOp) {
	w.ID = c.nextID()
	unknown := false
	for deadline := time.Now().Add(insistTime); ctx.Err() == nil && time.Now().Before(deadline); {
		if !c.connect(ctx) {
			continue
		}
		op.Node = c.node()
		patience, leave := askTime, c.giveUp
		if c.rng.IntN(flaky) == 0 {
			patience, leave = time.Duration(c.rng.IntN(10))*time.Millisecond, func(context.Context) { c.hangUp() }
		}
		switch c.conn.write(ctx, w, patience) {
		case model.Accepted:
			op.Outcome = check.OK
			return
		case model.Refused:
			op.Outcome, op.Refused = check.Failed, true
			return
		case model.NotApplied:
			c.rest(ctx, 100*time.Millisecond)
		default:
			unknown = true
			leave(ctx)
		}
		if c.rng.IntN(8) == 0 {
			break
		}
	}
	op.Outcome = check.Failed
	if unknown {
		op.Outcome = check.Unknown
	}
}

// read reads a whole map. Without an answer there is nothing to note.
func (c *caller) read(ctx context.Context, kind check.Kind, mapName string) (check.Op, bool) {
	if !c.connect(ctx) {
		return check.Op{}, false
	}
	consistency := ""
	if kind == check.Read {
		consistency = protocol.ConsistencyLinearizable
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	op := c.begin(kind, "", "")
	rows, err := c.conn.query(asking, c.nextID(), mapName, consistency, false)
	if err != nil {
		c.giveUp(ctx)
		return op, false
	}
	op.Rows, op.Outcome = rows, check.OK
	return c.end(op), true
}
