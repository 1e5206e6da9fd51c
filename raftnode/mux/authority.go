package mux

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/url"
	"time"
)

const (
	// authorityInfo separates this key from other uses of the secret.
	authorityInfo = "quorate cluster authority 1"
	// peerName is the name in every node's certificate: what is verified is the
	// cluster, and the handshake then says which node it is.
	peerName = "peer.quorate.internal"
)

// authority is the certificate authority of a cluster. It is a function of the
// secret, so all nodes have it without exchanging anything.
type authority struct {
	key  ed25519.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

// validity is the time in which a certificate is accepted.
type validity struct{ from, to time.Time }

// always spans any clock that a machine may boot with. Certificates live in memory
// and as long as their process; what ends trust is another secret.
func always() validity {
	return validity{from: time.Unix(0, 0), to: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
}

// newAuthority derives the key with HKDF (RFC 5869). Nodes verify each other by the
// public key in the certificate; its other bytes need not be equal.
func newAuthority(secret []byte) (*authority, error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, authorityInfo, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive cluster authority: %w", err)
	}
	a := &authority{key: ed25519.NewKeyFromSeed(seed), pool: x509.NewCertPool()}
	valid := always()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "quorate cluster authority"},
		NotBefore:             valid.from,
		NotAfter:              valid.to,
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("create cluster authority: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("create cluster authority: %w", err)
	}
	a.pool.AddCert(a.cert)
	return a, nil
}

// issue makes a certificate with a new key for a node, or for a tool when nodeID is
// empty. The node id is in its only URI.
func (a *authority) issue(nodeID string, valid validity) (tls.Certificate, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("create node key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("create node certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(2)),
		Subject:      pkix.Name{CommonName: "quorate node"},
		NotBefore:    valid.from,
		NotAfter:     valid.to,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:     []string{peerName},
	}
	if nodeID != "" {
		template.URIs = []*url.URL{{Scheme: "quorate", Host: "node", Path: "/" + nodeID}}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("create node certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// configs returns the TLS settings of a node for the connections that it accepts
// and for those that it dials.
func (a *authority) configs(nodeID string, valid validity) (server, client *tls.Config, err error) {
	cert, err := a.issue(nodeID, valid)
	if err != nil {
		return nil, nil, err
	}
	server = &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    a.pool,
		// Connections live long; a resumed session would skip the certificates.
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}
	client = &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		Certificates:                []tls.Certificate{cert},
		RootCAs:                     a.pool,
		ServerName:                  peerName,
		DynamicRecordSizingDisabled: true,
	}
	return server, client, nil
}
