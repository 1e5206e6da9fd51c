package ws

import (
	"bytes"
	"errors"
	"time"

	"golang.org/x/time/rate"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
)

// envelope is how a message came: what the rate limiter still wants for it, and how
// many bytes it holds on to.
type envelope struct {
	size  int
	paid  int  // operations that the frame around it has paid for
	inner bool // it came inside a BATCH
}

// receive handles one frame.
func (c *conn) receive(frame []byte) {
	m, err := protocol.Decode(frame)
	if !c.live.Load() {
		c.receiveEarly(m, err, len(frame))
		return
	}
	if err != nil {
		c.receiveBroken(err, len(frame))
		return
	}
	c.srv.metrics.received(m.Kind(), len(frame))
	c.dispatch(m, envelope{size: len(frame)})
}

// receiveEarly handles a frame of a client that has not authenticated: anything but
// AUTH is dropped without an answer, so that it cannot be used to probe or to make
// us send.
func (c *conn) receiveEarly(m protocol.Message, err error, size int) {
	if err != nil {
		c.srv.metrics.received(protocol.KindInvalid, size)
		c.unread.Store(true)
		return
	}
	c.srv.metrics.received(m.Kind(), size)
	if holdsWrites(m.Kind()) {
		c.unread.Store(true)
	}
	if m, ok := m.(*protocol.Auth); ok {
		c.receiveAuth(m)
	}
}

// holdsWrites reports whether messages of a kind bring operations that are acknowledged.
func holdsWrites(kind protocol.Kind) bool {
	return kind == protocol.KindClientOp || kind == protocol.KindOpBatch || kind == protocol.KindBatch
}

// receiveBroken handles a frame that cannot be understood. An unknown type is a
// client newer than we are; anything else is a mistake that it is told about, at
// most once a second.
func (c *conn) receiveBroken(err error, size int) {
	c.srv.metrics.received(protocol.KindInvalid, size)
	var decode *protocol.DecodeError
	if errors.As(err, &decode) && (decode.Kind == protocol.KindInvalid || holdsWrites(decode.Kind)) {
		c.unread.Store(true)
	}
	if !c.allow(1) || errors.Is(err, protocol.ErrUnknownKind) {
		return
	}
	if now := time.Now(); now.Sub(c.complained) >= time.Second {
		c.complained = now
		c.reply(decodeFailure(err))
	}
}

// allow takes cost operations from the connection's rate.
func (c *conn) allow(cost int) bool {
	if c.limiter == nil || cost <= 0 {
		return true
	}
	if now := rate.Limit(c.srv.changing.Load().OperationsPerSecond); c.limiter.Limit() != now {
		c.limiter.SetLimit(now)
	}
	return c.limiter.AllowN(time.Now(), min(cost, c.srv.cfg.RateBurst))
}

// cost is how many operations m counts for.
func cost(m protocol.Message) int {
	switch m := m.(type) {
	case *protocol.OpBatch:
		return max(1, len(m.Ops))
	case *protocol.ORMapPushDiff:
		return max(1, len(m.Entries))
	case *protocol.Batch, *protocol.DeviceHello: // a BATCH pays for what is in it
		return 0
	case *protocol.MerkleReqBucket, *protocol.ORMapMerkleReqBucket:
		return 0 // thousands belong to one sync; the queue of the syncer bounds them
	default:
		return 1
	}
}

// dispatch hands a message to its handler.
func (c *conn) dispatch(m protocol.Message, env envelope) {
	if cost := cost(m) - env.paid; !c.allow(cost) {
		c.limited(m, cost)
		return
	}
	if r := c.forbidden(m); r.Refused() {
		c.refuseForbidden(m, r)
		return
	}
	switch m := m.(type) {
	case *protocol.Ping:
		c.reply(&protocol.Pong{Timestamp: m.Timestamp, ServerTime: c.srv.deps.Now()})
	case *protocol.ClientOpMessage:
		c.receiveWrite(judge.Writes{Ops: []protocol.ClientOp{m.Op}}, env.size)
	case *protocol.OpBatch:
		c.receiveWrite(judge.Writes{Ops: m.Ops, Level: m.WriteConcern, TimeoutMillis: m.TimeoutMillis}, env.size)
	case *protocol.QuerySub:
		c.receiveQuerySub(m, env.size)
	case *protocol.SyncInit, *protocol.MerkleReqBucket, *protocol.ORMapSyncInit, *protocol.ORMapMerkleReqBucket, *protocol.ORMapDiffRequest:
		c.receiveSync(m, env.size)
	case *protocol.ORMapPushDiff:
		c.receivePush(m, env.size)
	case *protocol.LockRequest:
		c.receiveLockRequest(m)
	case *protocol.LockRelease:
		c.receiveLockRelease(m)
	case *protocol.TopicSub:
		c.receiveTopicSub(m)
	case *protocol.TopicUnsub:
		c.srv.topics.remove(c, m.Topic)
	case *protocol.TopicPub:
		c.receiveTopicPub(m)
	case *protocol.CounterRequest:
		c.receiveCounterRequest(m)
	case *protocol.CounterSync:
		c.receiveCounterSync(m)
	case *protocol.QueryUnsub:
		c.queries.remove(m.QueryID)
	case *protocol.PartitionMapRequest:
		c.receiveMapRequest(m)
	case *protocol.Batch:
		if !env.inner {
			c.receiveBatch(m)
		}
	case *protocol.Auth:
		if !env.inner {
			c.receiveAuth(m)
		}
	case *protocol.DeviceHello:
		if !env.inner {
			c.receiveHello(m)
		}
	default:
		c.receiveUnsupported(m)
	}
}

// receiveBatch handles the messages inside a BATCH as if they had come one by one.
func (c *conn) receiveBatch(m *protocol.Batch) {
	frames, err := protocol.SplitBatch(m.Data)
	if errors.Is(err, protocol.ErrTooManyItems) {
		c.answerInTurn(failure(protocol.CodeTooLarge, "batch exceeds maximum inner item count"))
		return
	}
	if !c.allow(len(frames)) {
		c.limited(m, len(frames))
		return
	}
	for _, frame := range frames {
		if c.ending.Load() != nil {
			return
		}
		// What waits holds on to the frame that it was decoded from, and is counted with its size.
		inner, err := protocol.Decode(bytes.Clone(frame))
		if err != nil {
			c.receiveBroken(err, len(frame))
			continue
		}
		c.srv.metrics.received(inner.Kind(), 0) // its bytes were counted with the BATCH
		c.dispatch(inner, envelope{size: len(frame), paid: 1, inner: true})
	}
	if err != nil {
		c.unread.Store(true)
		c.reply(failure(protocol.CodeMalformed, "batch is cut short: everything before the last item was handled"))
	}
}

// limited refuses a message whose cost is beyond the rate. The answer keeps its place among
// those to writes, so that a client that counts them is not confused.
func (c *conn) limited(m protocol.Message, cost int) {
	c.srv.metrics.limit("rate")
	missing := float64(min(cost, c.srv.cfg.RateBurst)) - c.limiter.Tokens()
	wait := time.Duration(missing / float64(c.limiter.Limit()) * float64(time.Second))
	c.answerInTurn(laterFailureOf(m, protocol.CodeOverloaded, "rate limit exceeded, slow down", wait))
}

// receiveMapRequest answers with the partition map if the client's is older.
func (c *conn) receiveMapRequest(m *protocol.PartitionMapRequest) {
	frame, version := c.srv.mapFrame(c.backend)
	if frame == nil || m.CurrentVersion >= version {
		return
	}
	if err := c.out.put(protocol.KindPartitionMap, frame); errors.Is(err, errSlow) {
		c.slow()
	}
}
