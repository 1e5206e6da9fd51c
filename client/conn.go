package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

const (
	// writeTimeout bounds the sending of one frame.
	writeTimeout = 10 * time.Second
	// maxFrames is how many frames of writes are on their way. Writes gather meanwhile.
	maxFrames = 16
	// maxFrameOps and maxFrameBytes bound what one frame of writes gathers.
	maxFrameOps   = 512
	maxFrameBytes = 512 << 10
	// maxComplaints is how often in a row a node may say that it cannot serve before another
	// one is tried.
	maxComplaints = 2
)

// errMoves ends the connection to a node that cannot serve.
var errMoves = errors.New("the node cannot serve now, another one is tried")

// conn is one connection. It is live from attach to detach.
type conn struct {
	client *Client
	sock   *websocket.Conn
	// url is the seed's, node the name that it gave.
	url, node string
	ctx       context.Context
	cancel    context.CancelCauseFunc
	// renewAt is when another token is presented, zero for never. For the heartbeats.
	renewAt time.Time
	// wake tells the writer that there may be something to send.
	wake chan struct{}
	// heard is when something last came, in nanoseconds since opened.
	heard  atomic.Int64
	opened time.Time

	// The fields below are protected by Client.mu.

	// control is what is sent before all else: heartbeats and subscriptions.
	control []protocol.Message
	// frames are the writes that wait for an answer, oldest first.
	frames []*frame
	// pings are the heartbeats that wait for an answer, by number.
	pings map[uint64]*ping
	// locks are those that the connection holds, and spent the greatest token of each lock
	// that was lost before the connection ended.
	locks map[*Lock]struct{}
	spent map[string]uint64
	// counters are what was shown of those that are watched. Another connection begins anew: the
	// cluster may have been restored, with less.
	counters map[string]protocol.CounterState
	// complaints counts the requests in a row that the node could not serve.
	complaints int
}

// frame is one OP_BATCH on its way.
type frame struct {
	lastID string
	calls  []*call
}

// ping is a heartbeat on its way, and the call that waits for it, if there is one.
type ping struct {
	number uint64
	sent   time.Time
	call   *call
}

func newConn(c *Client, sock *websocket.Conn, url string) *conn {
	cn := &conn{
		client: c, sock: sock, url: url, wake: make(chan struct{}, 1), opened: time.Now(),
		pings: map[uint64]*ping{}, locks: map[*Lock]struct{}{}, spent: map[string]uint64{},
		counters: map[string]protocol.CounterState{},
	}
	cn.ctx, cn.cancel = context.WithCancelCause(c.ctx)
	return cn
}

// serve carries requests and answers until the connection ends, and returns why.
func (cn *conn) serve() error {
	var work sync.WaitGroup
	work.Go(func() { cn.cancel(cn.write()) })
	work.Go(func() { cn.cancel(cn.beat()) })
	err := cn.read()
	cn.cancel(err)
	_ = cn.sock.CloseNow()
	work.Wait()
	if cause := context.Cause(cn.ctx); !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return cn.client.lastWords(err)
}

// wakeWriter has the writer look for something to send.
func (cn *conn) wakeWriter() {
	select {
	case cn.wake <- struct{}{}:
	default:
	}
}

// postLocked has a message sent that nobody waits for.
func (cn *conn) postLocked(m protocol.Message) {
	cn.control = append(cn.control, m)
	cn.wakeWriter()
}

func (cn *conn) send(ctx context.Context, m protocol.Message) error {
	b, err := protocol.Append(nil, m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Kind(), err)
	}
	return cn.sock.Write(ctx, websocket.MessageBinary, b)
}

func (cn *conn) receive(ctx context.Context) (protocol.Message, error) {
	for {
		_, b, err := cn.sock.Read(ctx)
		if err != nil {
			return nil, err
		}
		cn.heard.Store(int64(time.Since(cn.opened)))
		m, err := protocol.DecodeAnswer(b)
		if errors.Is(err, protocol.ErrUnknownKind) {
			continue // of a server that is newer than this client
		}
		return m, err
	}
}

func (cn *conn) read() error {
	for {
		m, err := cn.receive(cn.ctx)
		if err != nil {
			return err
		}
		cn.client.handle(cn, m)
	}
}

// beat sends heartbeats and fresh tokens, and gives the connection up when nothing comes.
func (cn *conn) beat() error {
	interval := cn.client.cfg.HeartbeatInterval
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-cn.ctx.Done():
			return cn.ctx.Err()
		}
		if silence := time.Since(cn.opened) - time.Duration(cn.heard.Load()); silence > 3*interval {
			return fmt.Errorf("nothing heard for %v", silence.Round(time.Millisecond))
		}
		messages := cn.renewToken()
		cn.client.mu.Lock()
		for _, m := range append(messages, cn.pingLocked(nil)) {
			cn.postLocked(m)
		}
		cn.client.mu.Unlock()
	}
}

// pingLocked is a new heartbeat, whose answer ends a call.
func (cn *conn) pingLocked(k *call) *protocol.Ping {
	p := &ping{number: cn.client.seq.Add(1), sent: time.Now(), call: k}
	if cn.pings != nil {
		cn.pings[p.number] = p
	}
	return &protocol.Ping{Timestamp: msgp.AppendUint64(nil, p.number)}
}

// write sends what waits until the connection ends.
func (cn *conn) write() error {
	for {
		cn.client.mu.Lock()
		messages, calls := cn.nextLocked()
		cn.client.mu.Unlock()
		if len(messages) == 0 {
			select {
			case <-cn.wake:
				continue
			case <-cn.ctx.Done():
				return cn.ctx.Err()
			}
		}
		for _, m := range messages {
			if err := cn.writeOne(m, calls); err != nil {
				return err
			}
		}
	}
}

// writeOne sends a message. One that no server takes ends the calls that it is about.
func (cn *conn) writeOne(m protocol.Message, calls []*call) error {
	b, err := protocol.Append(nil, m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Kind(), err)
	}
	if len(b) > protocol.MaxFrame {
		cn.client.tooLarge(cn, calls)
		return nil
	}
	ctx, cancel := context.WithTimeout(cn.ctx, writeTimeout)
	defer cancel()
	return cn.sock.Write(ctx, websocket.MessageBinary, b)
}

// nextLocked takes what is to be sent next, and the calls that it is about.
func (cn *conn) nextLocked() (messages []protocol.Message, calls []*call) {
	c := cn.client
	if c.conn != cn {
		return nil, nil
	}
	if len(cn.control) > 0 {
		messages, cn.control = cn.control, nil
		return messages, nil
	}
	if len(c.requests) > 0 {
		k := c.requests[0]
		c.requests = c.requests[1:]
		k.queued, k.conn = false, cn
		messages = []protocol.Message{k.msg}
		if k.barrier {
			messages = append(messages, cn.pingLocked(k))
		}
		return messages, []*call{k}
	}
	if len(c.writes) == 0 || len(cn.frames) >= maxFrames {
		return nil, nil
	}
	f := &frame{}
	batch := &protocol.OpBatch{}
	for size := 0; len(f.calls) < len(c.writes) && len(f.calls) < maxFrameOps; {
		k := c.writes[len(f.calls)]
		if size += opSize(k.op); size > maxFrameBytes && len(f.calls) > 0 {
			break
		}
		k.queued, k.conn = false, cn
		f.calls, f.lastID = append(f.calls, k), k.id
		batch.Ops = append(batch.Ops, *k.op)
	}
	c.writes = c.writes[len(f.calls):]
	cn.frames = append(cn.frames, f)
	return []protocol.Message{batch}, f.calls
}

// tooLong reports whether no frame holds an operation.
func (c *Client) tooLong(op *protocol.ClientOp) bool { return opSize(op) > protocol.MaxFrame }

// opSize is about what an operation takes in a frame.
func opSize(op *protocol.ClientOp) int {
	size := 512 + len(op.MapName) + len(op.Key) + len(op.Record.Value)
	if op.ORRecord != nil {
		size += len(op.ORRecord.Value)
	}
	return size
}
