package mux

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// certifiedNode returns the node id in the certificate of the other end.
func certifiedNode(conn *tls.Conn) (string, error) {
	certs := conn.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return "", errors.New("peer showed no certificate")
	}
	switch uris := certs[0].URIs; len(uris) {
	case 0:
		return "", nil
	case 1:
		return strings.TrimPrefix(uris[0].Path, "/"), nil
	default:
		return "", errors.New("certificate of peer names several nodes")
	}
}

// secretError marks the failures of a TLS handshake that mean that the other end
// does not hold the same secret.
func secretError(err error) error {
	var unknown x509.UnknownAuthorityError
	var plain tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: %w", ErrWrongSecret, err)
	case errors.As(err, &alert) && alert.Op == "remote error":
		// What it objects to can only be the certificate.
		return fmt.Errorf("%w: %w", ErrWrongSecret, err)
	case errors.As(err, &plain) && string(plain.RecordHeader[:len(magic)]) == magic:
		return fmt.Errorf("%w: it has none", ErrWrongSecret)
	default:
		return err
	}
}

// checkCertificate reports an error when the certificate of the other end is another
// node's.
func checkCertificate(conn *peerConn) error {
	secured, ok := conn.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	certified, err := certifiedNode(secured)
	if err == nil && certified != conn.peer.NodeID {
		err = fmt.Errorf("certificate of %q shown by %q", certified, conn.peer.NodeID)
	}
	return err
}

// tlsHandshake is the first byte of a TLS connection.
const tlsHandshake = 22

// skipRecord reads the rest of the TLS record whose first byte was read.
func skipRecord(r io.Reader) error {
	var h [4]byte // version and size
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, r, int64(binary.BigEndian.Uint16(h[2:])))
	return err
}

// prefixedConn is a connection of which the first bytes were already read.
type prefixedConn struct {
	net.Conn
	prefix []byte
}

// Read implements net.Conn.
func (c *prefixedConn) Read(b []byte) (int, error) {
	if len(c.prefix) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.prefix)
	c.prefix = c.prefix[n:]
	return n, nil
}
