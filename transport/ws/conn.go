package ws

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

// conn is one client connection. Its reader goroutine runs run; fields without a
// comment on sharing belong to that goroutine or never change.
type conn struct {
	srv     *Server
	backend Backend
	session *partitions.Session
	id      string
	addr    string
	sock    *websocket.Conn
	net     *netConn
	opened  time.Time

	// ctx ends when the connection begins to close; queries under way end with it.
	ctx    context.Context
	cancel context.CancelFunc
	// out is what is to be sent; safe for concurrent use.
	out *outbound
	// tasks counts the frames that wait for the cluster, slots bounds them.
	tasks sync.WaitGroup
	slots chan struct{}
	// ending is why and how the connection closes; set once.
	ending atomic.Pointer[ending]
	// live says that the client is authenticated or need not be.
	live atomic.Bool
	// failed: a frame of writes was answered with ERROR. Later acknowledgements
	// then name what they cover, because without results they would claim
	// everything that was sent before.
	failed atomic.Bool
	// unread: a frame that may have held writes was not read, so that they have no verdict.
	// Acknowledgements list what they cover from then on, too.
	unread atomic.Bool

	auth    authState
	turns   turns
	limiter *rate.Limiter // nil for no bound
	queries queries
	syncs   syncer
	locks   nameTurns
	asks    lockAsks
	// counting orders what the connection does with counters; counters are those that it
	// follows, under the lock of the server's feeds.
	counting nameTurns
	counters map[string]struct{}
	// topics are those that it subscribed to, under the lock of the server's index.
	topics map[string]struct{}
	// complained is when the client was last told about a frame that cannot be
	// understood.
	complained time.Time
}

// answerBytes is room for most answers, so that encoding allocates once.
const answerBytes = 128

// manner is how a connection closes.
type manner uint8

const (
	closeNow     manner = iota // drop what waits to be sent
	closeFlushed               // send what is queued first
	closeDrained               // let tasks finish and send their answers first
)

// ending is a decision to close.
type ending struct {
	manner manner
	code   protocol.CloseCode
	reason string
}

// Reasons of Close frames. Clients show them at most.
const (
	reasonShutdown    = "server is shutting down"
	reasonSlow        = "slow consumer"
	reasonUnknown     = "outcome unknown, send again"
	reasonGap         = "changes were lost, subscribe again"
	reasonIdle        = "idle timeout"
	reasonTooBig      = "frame is too large"
	reasonAuthTimeout = "authentication timeout"
	reasonAuthFailed  = "authentication failed"
	reasonExpired     = "token expired"
	reasonRevoked     = "access revoked"
	reasonPending     = "writes were not taken, send them again before the sync"
	reasonUnread      = "map cannot be read now"
	reasonSyncs       = "too many sync requests at once"
	reasonInternal    = "internal error"
)

func newConn(s *Server, b Backend, sock *websocket.Conn, nc *netConn, addr string) *conn {
	c := &conn{
		srv: s, backend: b, session: b.NewSession(), sock: sock, net: nc, addr: addr,
		id:     s.idBase + strconv.FormatUint(s.ids.Add(1), 36),
		opened: time.Now(),
		slots:  make(chan struct{}, s.cfg.Connection.InFlight),
	}
	c.auth.client = c.id
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.out = newOutbound(s.cfg.Connection, c.sendChunk)
	if s.cfg.RatePerSecond > 0 {
		c.limiter = rate.NewLimiter(rate.Limit(s.changing.Load().OperationsPerSecond), s.cfg.RateBurst)
	}
	return c
}

// run serves the connection until it has closed.
func (c *conn) run() {
	c.srv.log.Debug("connection opened", "conn", c.id, "addr", c.addr)
	c.greet()
	for c.ending.Load() == nil {
		frame, err := c.read()
		if err != nil {
			c.readFailed(err)
			break
		}
		if frame != nil {
			c.guard(frame)
		}
	}
	c.finish()
	c.tasks.Wait()
	c.leaveLocks()
}

// read returns the next frame to look at; nil for one that is passed over.
func (c *conn) read() ([]byte, error) {
	c.net.readUntil(c.readDeadline())
	kind, r, err := c.sock.Reader(context.Background())
	if err != nil {
		return nil, err
	}
	limit := protocol.MaxFrame
	if c.live.Load() {
		// The client is alive: the rest of the frame has the idle timeout again.
		c.net.readUntil(time.Now().Add(c.srv.cfg.Connection.IdleTimeout))
	} else {
		limit = c.srv.cfg.AuthFrameBytes
	}
	if kind != websocket.MessageBinary {
		c.unread.Store(true)
		c.srv.metrics.received(protocol.KindInvalid, 0)
		_, err := io.Copy(io.Discard, r)
		return nil, err
	}
	return c.readFrame(r, limit)
}

// readFrame reads one message of up to limit bytes; of a longer one it keeps
// nothing. Memory grows only with the bytes that have arrived.
func (c *conn) readFrame(r io.Reader, limit int) ([]byte, error) {
	buf := c.srv.buffers.get()
	defer func() { c.srv.buffers.put(buf) }()
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if len(buf) > limit {
			c.unread.Store(true)
			_, err := io.Copy(io.Discard, r)
			return nil, err
		}
		if errors.Is(err, io.EOF) {
			// The message lives as long as its task, so it gets its own memory. A
			// buffer that would not be pooled again is its own already.
			frame := buf
			if cap(buf) > pooledBytes {
				buf = nil
			} else {
				frame = bytes.Clone(buf)
			}
			return frame, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (c *conn) readDeadline() time.Time {
	if c.live.Load() {
		return time.Now().Add(c.srv.cfg.Connection.IdleTimeout)
	}
	return c.opened.Add(c.srv.cfg.AuthTimeout)
}

// readFailed decides how to close after a failed read: by our own decision if
// there is one, otherwise by what happened.
func (c *conn) readFailed(err error) {
	switch {
	case c.ending.Load() != nil:
	case errors.Is(err, websocket.ErrMessageTooBig):
		c.end(closeFlushed, protocol.CloseTooBig, reasonTooBig)
	case errors.Is(err, os.ErrDeadlineExceeded) && c.live.Load():
		c.end(closeFlushed, protocol.CloseIdle, reasonIdle)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.end(closeFlushed, protocol.CloseAuth, reasonAuthTimeout)
	default:
		c.srv.log.Debug("connection lost", "conn", c.id, "err", err)
	}
}

// guard handles one frame. A panic, which only a defect in decoding or checking can
// cause, ends this connection and not the node: nothing shared is held meanwhile.
func (c *conn) guard(frame []byte) {
	defer func() {
		if p := recover(); p != nil {
			c.srv.log.Error("panic while handling a frame", "conn", c.id, "panic", p, "stack", string(debug.Stack()))
			c.end(closeFlushed, protocol.CloseRetry, reasonInternal)
		}
	}()
	c.receive(frame)
}

// end begins to close the connection. The first call decides; it does not block.
// With any manner but closeDrained, no frame is queued after it returned.
func (c *conn) end(m manner, code protocol.CloseCode, reason string) {
	first := c.ending.CompareAndSwap(nil, &ending{manner: m, code: code, reason: reason})
	switch m {
	case closeNow:
		c.out.abort()
		c.net.limitWrites(time.Now().Add(c.srv.cfg.CloseTimeout / 2))
	case closeFlushed:
		c.out.refuse()
	case closeDrained:
	}
	if first {
		c.net.interrupt()
		c.cancel()
	}
}

// slow closes the connection of a client that does not keep up.
func (c *conn) slow() {
	c.srv.metrics.slowConsumers.Inc()
	c.end(closeNow, protocol.CloseRetry, reasonSlow)
}

// cut closes the socket without a word.
func (c *conn) cut() {
	c.end(closeNow, protocol.CloseShutdown, reasonShutdown)
	c.net.cut()
}

// finish closes the connection as decided, or because the peer is gone.
func (c *conn) finish() {
	c.cancel()
	c.auth.stop()
	c.queries.closeAll()
	c.srv.unfollowAll(c)
	c.srv.topics.removeAll(c)
	end := c.ending.Load()
	if end == nil {
		c.out.abort()
	} else if end.manner == closeDrained {
		c.tasks.Wait()
	}
	c.net.limitWrites(time.Now().Add(c.srv.cfg.Connection.SendTimeout))
	c.out.finish()
	if end == nil {
		c.srv.metrics.closed(0)
		_ = c.sock.CloseNow() // the peer is gone
	} else {
		c.srv.log.Debug("closing connection", "conn", c.id, "code", uint16(end.code), "reason", end.reason)
		c.srv.metrics.closed(end.code)
		c.net.linger(time.Now().Add(c.srv.cfg.CloseTimeout))
		_ = c.sock.Close(websocket.StatusCode(end.code), end.reason) // the peer may not answer
	}
	c.srv.forget(c)
}

// reply queues an answer. When it cannot, the connection is closed or closing.
func (c *conn) reply(m protocol.Message) {
	c.srv.metrics.failed(m)
	frame, err := protocol.Append(make([]byte, 0, answerBytes), m)
	if err != nil {
		c.srv.log.Error("encode answer", "conn", c.id, "type", m.Kind().String(), "err", err)
		c.end(closeFlushed, protocol.CloseRetry, reasonInternal)
		return
	}
	c.replyFrame(m.Kind(), frame)
}

// replyFrame queues an answer that is encoded.
func (c *conn) replyFrame(kind protocol.Kind, frame []byte) {
	if err := c.out.put(kind, frame); errors.Is(err, errSlow) {
		c.slow()
	}
}

// push queues a frame that the client did not ask for.
func (c *conn) push(kind protocol.Kind, frame []byte) {
	if err := c.out.push(kind, frame); errors.Is(err, errSlow) {
		c.slow()
	}
}

// sendChunk writes queued items to the socket; see outbound.
func (c *conn) sendChunk(chunk []item) error {
	c.net.cork()
	err := c.writeItems(chunk)
	if flushErr := c.net.uncork(); err == nil {
		err = flushErr
	}
	if err != nil {
		c.sendFailed(err)
	}
	return err
}

func (c *conn) writeItems(chunk []item) error {
	var events *eventWriter // most chunks hold none
	for i := range chunk {
		it := &chunk[i]
		if it.query == nil {
			if err := c.writeFrame(it.kind, it.frame); err != nil {
				return err
			}
			continue
		}
		if events == nil {
			events = &eventWriter{conn: c, scratch: c.srv.buffers.get()}
			defer func() { c.srv.buffers.put(events.scratch) }()
		}
		if err := it.query.write(events, it); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) writeFrame(kind protocol.Kind, frame []byte) error {
	c.srv.metrics.sent(kind, len(frame))
	return c.sock.Write(context.Background(), websocket.MessageBinary, frame)
}

// sendFailed closes after a failed write. One that ran into its deadline means that
// the client does not read; any other, that it is gone, which the reader notices.
func (c *conn) sendFailed(err error) {
	switch {
	case c.ending.Load() != nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.slow()
	default:
		c.net.cut()
	}
}

// eventWriter encodes the events of one chunk. It lives for that chunk, so that the
// messages it fills are allocated once and not per event.
type eventWriter struct {
	conn    *conn
	scratch []byte
	event   protocol.ServerEvent
	record  protocol.Record
	update  protocol.QueryUpdate
	changes []partitions.Change
}

func (w *eventWriter) message(m protocol.Message) error {
	frame, err := protocol.Append(w.scratch[:0], m)
	if err != nil {
		return err
	}
	w.scratch = frame
	return w.conn.writeFrame(m.Kind(), frame)
}
