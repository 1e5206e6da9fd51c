package mux

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// dial connects to an address and greets. Every error wraps ErrUnreachable: nothing
// but the greeting was sent. The connection is tracked and has no deadline.
func (m *Mux) dial(ctx context.Context, addr string, h hello, layer *streamLayer) (*peerConn, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.HandshakeTimeout)
	defer cancel()
	conn, err := m.dialGreet(ctx, addr, h, layer)
	m.metrics.handshakes.WithLabelValues("out", outcome(err)).Inc()
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w: %w (%w)", addr, ErrUnreachable, ctx.Err(), err)
	default:
		return nil, fmt.Errorf("%s: %w: %w", addr, ErrUnreachable, err)
	}
}

func (m *Mux) dialGreet(ctx context.Context, addr string, h hello, layer *streamLayer) (*peerConn, error) {
	raw, err := m.deps.Network.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	// The deadline also comes when the context is cancelled.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	conn, err := m.greet(raw, h)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		conn.layer = layer
		err = errors.Join(raw.SetDeadline(time.Time{}), m.conns.add(conn, m.cfg.MaxConns))
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	m.learn(conn.peer, false)
	return conn, nil
}

// greet runs the dialer's side of the handshake.
func (m *Mux) greet(raw net.Conn, h hello) (*peerConn, error) {
	conn := &peerConn{Conn: raw, raw: raw, set: m.conns, dialed: true}
	if m.clientTLS != nil {
		secured := tls.Client(raw, m.clientTLS)
		if err := secured.Handshake(); err != nil {
			return nil, secretError(err)
		}
		conn.Conn = secured
	}
	h.version = version
	h.clusterID, h.nodeID, h.incarnation = m.ClusterID(), m.cfg.NodeID, m.cfg.Incarnation
	h.advertise = m.addr
	if _, err := conn.Write(h.append(nil)); err != nil {
		return nil, err
	}
	r, err := readReply(conn)
	if err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	conn.peer = r.peer()
	if err := m.checkReply(conn, &r, &h); err != nil {
		return nil, err
	}
	conn.window = int(r.window)
	return conn, nil
}

// checkReply returns the refusal, or why this node will not go on.
func (m *Mux) checkReply(conn *peerConn, r *reply, h *hello) error {
	refused := &RefusedError{Code: r.code, Text: r.text, By: conn.peer}
	if r.code != 0 {
		return refused
	}
	if err := checkCertificate(conn); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	// The other end checks these too. It is asked by a node that trusts only itself.
	if h.target != "" && h.target != string(conn.peer.ID) {
		return &RefusedError{Code: RefusedWrongTarget, Text: "it is not " + h.target, By: conn.peer}
	}
	if h.clusterID != "" && r.clusterID != "" && h.clusterID != r.clusterID {
		return &RefusedError{Code: RefusedWrongCluster, Text: "it belongs to cluster " + r.clusterID, By: conn.peer}
	}
	return nil
}
