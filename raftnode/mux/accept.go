package mux

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"time"
)

// welcome runs the accepting side of the handshake. The connection returned is
// tracked and has no deadline; on an error raw is closed.
func (m *Mux) welcome(raw net.Conn) (*peerConn, error) {
	conn, err := m.accept(raw)
	if err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	m.metrics.handshakes.WithLabelValues("in", outcome(err)).Inc()
	if err != nil {
		if conn != nil {
			conn.abort()
		}
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

func (m *Mux) accept(raw net.Conn) (*peerConn, error) {
	if err := raw.SetDeadline(time.Now().Add(m.cfg.HandshakeTimeout)); err != nil {
		return nil, err
	}
	conn := &peerConn{Conn: raw, raw: raw, set: m.conns}
	h, err := m.readHello(conn)
	if err != nil {
		return nil, err
	}
	conn.peer = h.peer()
	if refusal := m.judge(conn, &h); refusal != nil {
		return nil, m.refuse(conn, refusal)
	}
	m.learn(conn.peer, true)
	if err := m.conns.add(conn, m.cfg.MaxConns); err != nil {
		return nil, m.refuse(conn, &RefusedError{Code: RefusedBusy, Text: err.Error()})
	}
	// Once more: Refuse and SetClusterID close what they find, and now they find it.
	if refusal := m.judge(conn, &h); refusal != nil {
		return conn, m.refuse(conn, refusal)
	}
	return conn, m.reply(conn, reply{window: uint16(m.cfg.MaxCalls)})
}

// readHello reads the greeting, through TLS if there is a secret, and leaves conn.Conn
// as what the rest of the connection runs over.
func (m *Mux) readHello(conn *peerConn) (hello, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return hello{}, err
	}
	isTLS := first[0] == tlsHandshake
	switch {
	case isTLS && m.serverTLS == nil:
		// Read what was sent, or the refusal may be lost in the reset of the close.
		if err := skipRecord(conn); err != nil {
			return hello{}, err
		}
		return hello{}, m.refuse(conn, &RefusedError{Code: RefusedSecret, Text: "this node has no secret"})
	case isTLS:
		secured := tls.Server(&prefixedConn{Conn: conn.raw, prefix: first}, m.serverTLS)
		if err := secured.Handshake(); err != nil {
			return hello{}, secretError(err)
		}
		conn.Conn, first = secured, nil
	}
	p, err := readPrefix(conn, first)
	if err != nil {
		return hello{}, err
	}
	body, err := p.readBody(conn)
	if err != nil {
		return hello{}, err
	}
	switch {
	case m.serverTLS != nil && !isTLS:
		return hello{}, m.refuse(conn, &RefusedError{Code: RefusedSecret, Text: "this node requires the cluster secret"})
	case p.version != version:
		text := fmt.Sprintf("this node speaks version %d, not %d", version, p.version)
		return hello{}, m.refuse(conn, &RefusedError{Code: RefusedVersion, Text: text})
	}
	h, err := decodeHello(p.version, kind(p.what), body)
	if err != nil {
		return hello{}, m.refuse(conn, &RefusedError{Code: RefusedMalformed, Text: err.Error()})
	}
	return h, nil
}

// judge decides whether a peer may connect.
func (m *Mux) judge(conn *peerConn, h *hello) *RefusedError {
	m.mu.RLock()
	defer m.mu.RUnlock()
	id := conn.peer.ID
	switch {
	case m.clusterID != "" && h.clusterID != "" && m.clusterID != h.clusterID:
		return &RefusedError{Code: RefusedWrongCluster, Text: "this node belongs to cluster " + m.clusterID}
	case m.refused[id]:
		return &RefusedError{Code: RefusedRemoved, Text: fmt.Sprintf("%s was removed from the cluster", id)}
	case h.target != "" && h.target != string(m.id):
		return &RefusedError{Code: RefusedWrongTarget, Text: fmt.Sprintf("this node is %s, not %s", m.id, h.target)}
	case (h.nodeID == "") != (h.incarnation == ""):
		return &RefusedError{Code: RefusedMalformed, Text: "half a server id"}
	}
	if err := checkCertificate(conn); err != nil {
		return &RefusedError{Code: RefusedMalformed, Text: err.Error()}
	}
	if h.kind == kindStream {
		if conn.layer = m.layers[h.group]; conn.layer == nil || id == "" {
			return &RefusedError{Code: RefusedUnknownGroup, Text: fmt.Sprintf("group %d does not run here", h.group)}
		}
	}
	return nil
}

// refuse tells the dialer why, as far as it listens, and returns the refusal.
func (m *Mux) refuse(conn *peerConn, refusal *RefusedError) error {
	if err := m.reply(conn, reply{code: refusal.Code, text: refusal.Text}); err != nil {
		return fmt.Errorf("%w (%w)", refusal, err)
	}
	return refusal
}

// reply completes and sends a reply.
func (m *Mux) reply(conn *peerConn, r reply) error {
	r.version = version
	r.clusterID, r.nodeID, r.incarnation = m.ClusterID(), m.cfg.NodeID, m.cfg.Incarnation
	r.advertise = m.addr
	_, err := conn.Write(r.append(nil))
	return err
}
