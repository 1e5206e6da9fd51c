package mux

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Method names a function that peers can call. The numbers are part of the peer
// protocol: never reused, never renumbered.
type Method uint16

// Handler answers calls of one method. It runs in a goroutine of its own, many at a
// time. ctx ends when the caller gives up, its time is over, the connection is lost
// or the Mux closes; the handler must then return soon. It may keep body; the reply
// is copied before Handler's goroutine goes on. A *RemoteError reaches the caller
// with its code, any other error as CodeInternal with its text.
type Handler func(ctx context.Context, from Peer, body []byte) ([]byte, error)

// server is the accepting end of a call connection.
type server struct {
	*link
	handlers map[Method]Handler
	metrics  *metrics
	// maxRunning is twice the window of the peer: a call leaves the window when its
	// caller has the reply or gives up, and ends here a little later.
	maxRunning int
	maxBytes   int            // limit for bytes
	workers    sync.WaitGroup // goroutines of this connection

	mu      sync.Mutex // protects the fields below
	running map[uint64]context.CancelFunc
	bytes   int // bodies of running calls, and replies that wait for room
}

// serveCalls runs a call connection until it ends, and waits for its handlers.
func (m *Mux) serveCalls(conn *peerConn) {
	s := &server{
		link: newLink(conn, &m.cfg), handlers: m.handlers, metrics: m.metrics,
		maxRunning: 2 * m.cfg.MaxCalls, maxBytes: 4 * m.cfg.MaxMessage,
		running: make(map[uint64]context.CancelFunc),
	}
	ctx, cancel := context.WithCancel(m.ctx)
	s.workers.Go(s.writeLoop)
	s.workers.Go(func() { s.watch(false) })
	var err error
	for err == nil {
		err = s.readFrame(ctx)
	}
	s.fail(err)
	cancel()
	s.workers.Wait()
	if errors.Is(s.err, errMalformed) {
		m.log.Warn("peer broke the protocol", "conn", conn.RemoteAddr(), "node", conn.peer.ID, "err", s.err)
	}
}

func (s *server) readFrame(ctx context.Context) error {
	h, err := s.in.next()
	if err != nil {
		return err
	}
	switch h.kind {
	case frameRequest:
		return s.request(ctx, h)
	case frameCancel:
		s.cancel(h.id)
	case framePing:
		// When the queue is full, the peer sees replies instead.
		if _, err := s.out.tryPut(header{kind: framePong}, nil); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: frame kind %d in a request", errMalformed, h.kind)
	}
	return s.in.skip(h)
}

// request starts the handler of a call. What exceeds the limits is refused and not
// queued: the peer was told how many calls may be in progress.
func (s *server) request(ctx context.Context, h header) error {
	handler := s.handlers[Method(h.code)]
	if handler == nil {
		return s.refuse(ctx, h, CodeNoMethod)
	}
	callCtx, cancel := callContext(ctx, h.timeoutMillis)
	ok, err := s.admit(h, cancel)
	if !ok {
		cancel()
		if err != nil {
			return err
		}
		return s.refuse(ctx, h, CodeBusy)
	}
	body, err := s.in.body(h)
	if err != nil {
		s.finish(h)
		return err
	}
	s.workers.Go(func() {
		defer s.finish(h)
		reply, err := handler(callCtx, s.conn.peer, body)
		s.answer(h.id, reply, err)
	})
	return nil
}

func callContext(ctx context.Context, timeoutMillis uint32) (context.Context, context.CancelFunc) {
	if timeoutMillis == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(timeoutMillis)*time.Millisecond)
}

// admit counts a call as running if the limits allow it. The error says that the
// peer broke the protocol.
func (s *server) admit(h header, cancel context.CancelFunc) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.running[h.id]; ok {
		return false, fmt.Errorf("%w: call %d is already running", errMalformed, h.id)
	}
	if len(s.running) >= s.maxRunning || s.bytes+int(h.size) > s.maxBytes {
		return false, nil
	}
	s.running[h.id] = cancel
	s.bytes += int(h.size)
	return true, nil
}

func (s *server) finish(h header) {
	s.mu.Lock()
	cancel := s.running[h.id]
	delete(s.running, h.id)
	s.bytes -= int(h.size)
	s.mu.Unlock()
	cancel()
}

// hold counts bytes against maxBytes.
func (s *server) hold(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += n
}

func (s *server) cancel(id uint64) {
	s.mu.Lock()
	cancel := s.running[id]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// refuse answers a call that does not run. While there is no room for the answer
// nothing more is read: the peer must read its replies first.
func (s *server) refuse(ctx context.Context, h header, code uint16) error {
	s.metrics.served.WithLabelValues("refused").Inc()
	if err := s.in.skip(h); err != nil {
		return err
	}
	text := "too many calls in progress"
	if code == CodeNoMethod {
		text = fmt.Sprintf("no method %d", h.code)
	}
	return s.out.put(ctx, header{kind: frameError, code: code, id: h.id}, []byte(text))
}

// answer sends the outcome of a handler. It waits for room as long as the
// connection lasts: the slot of the call stays taken, so a peer that does not read
// holds up only itself.
func (s *server) answer(id uint64, reply []byte, err error) {
	h := header{kind: frameReply, id: id}
	result := "ok"
	if err == nil && len(reply) > s.in.maxBody {
		err = &RemoteError{Code: CodeReplyTooLarge, Text: fmt.Sprintf("reply of %d bytes", len(reply))}
	}
	if err != nil {
		result = "error"
		remote := &RemoteError{Code: CodeInternal, Text: err.Error()}
		errors.As(err, &remote)
		h.kind, h.code = frameError, remote.Code
		reply = []byte(remote.Text[:min(len(remote.Text), maxErrorText, s.in.maxBody)])
	}
	s.metrics.served.WithLabelValues(result).Inc()
	s.hold(len(reply))
	defer s.hold(-len(reply))
	// The put fails only when the link is down, and then nobody waits for a reply.
	_ = s.out.put(context.Background(), h, reply)
}

// maxErrorText bounds the text of a RemoteError on the wire.
const maxErrorText = 4 << 10
