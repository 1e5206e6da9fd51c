package mux

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Call runs a method on a peer and returns its reply, which belongs to the caller.
// Without a deadline in ctx, CallTimeout applies. Calls to one peer share one
// connection, in no particular order.
//
// Errors: ErrUnreachable, ErrTooLarge and ErrClosed promise that nothing was sent;
// *RemoteError is the handler's answer; ErrNoReply says nothing about whether the
// handler ran, and is the only indeterminate one. An end of ctx is wrapped beside
// ErrUnreachable or ErrNoReply.
func (m *Mux) Call(ctx context.Context, to raft.ServerID, method Method, body []byte) ([]byte, error) {
	ctx, cancel := m.bounded(ctx)
	defer cancel()
	start := time.Now()
	reply, err := m.call(ctx, to, method, body)
	m.count(start, err)
	if err != nil {
		return nil, fmt.Errorf("call %d of %s: %w", method, to, err)
	}
	return reply, nil
}

func (m *Mux) call(ctx context.Context, to raft.ServerID, method Method, body []byte) ([]byte, error) {
	if len(body) > m.cfg.MaxMessage {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(body))
	}
	// A connection may turn out to be dead at the moment of use: the second try dials.
	for try := 0; ; try++ {
		c, err := m.client(ctx, to)
		if err != nil {
			return nil, unreachable(err)
		}
		reply, err := c.do(ctx, method, body)
		if !unsent(err) {
			return reply, err
		}
		if try > 0 || ctx.Err() != nil {
			return nil, unreachable(err)
		}
	}
}

// CallAddr runs a method on whoever is at an address, over a connection of its own,
// and says who answered; the Peer is set whenever the handshake was completed. Its
// timeouts and errors are those of Call.
func (m *Mux) CallAddr(ctx context.Context, addr string, method Method, body []byte) ([]byte, Peer, error) {
	ctx, cancel := m.bounded(ctx)
	defer cancel()
	start := time.Now()
	reply, peer, err := m.callAddr(ctx, addr, method, body)
	m.count(start, err)
	if err != nil {
		return nil, peer, fmt.Errorf("call %d of %s: %w", method, addr, err)
	}
	return reply, peer, nil
}

func (m *Mux) callAddr(ctx context.Context, addr string, method Method, body []byte) ([]byte, Peer, error) {
	if len(body) > m.cfg.MaxMessage {
		return nil, Peer{}, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(body))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	conn, err := m.dial(ctx, addr, hello{kind: kindCalls}, nil)
	if err != nil {
		return nil, Peer{}, err
	}
	c := newClient(conn, &m.cfg)
	defer c.fail(errLinkClosed)
	if !c.start(m.spawn) {
		return nil, conn.peer, unreachable(ErrClosed)
	}
	reply, err := c.do(ctx, method, body)
	if unsent(err) {
		err = unreachable(err)
	}
	return reply, conn.peer, err
}

// bounded gives a context without a deadline the default one.
func (m *Mux) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, m.cfg.CallTimeout)
}

func (m *Mux) count(start time.Time, err error) {
	result := outcome(err)
	m.metrics.calls.WithLabelValues(result).Inc()
	if result == "ok" || result == "error" {
		m.metrics.callTime.Observe(time.Since(start).Seconds())
	}
}

// unreachable marks an error as ErrUnreachable, once.
func unreachable(err error) error {
	if errors.Is(err, ErrUnreachable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}
