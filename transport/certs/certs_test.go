package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
)

// issue writes a self-signed certificate for a name and returns it.
func issue(t *testing.T, dir, name string) (Files, tls.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	f := Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	require.NoError(t, os.WriteFile(f.Cert, certPEM, 0o600))
	require.NoError(t, os.WriteFile(f.Key, keyPEM, 0o600))
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	return f, pair
}

// shake returns the name that a server shows to a client.
func shake(t *testing.T, server *tls.Config, client *tls.Config) (name string, err error) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	failed := make(chan error, 1)
	go func() {
		s := tls.Server(a, server)
		err := s.Handshake()
		if err != nil {
			_ = a.Close()
		}
		failed <- err
	}()
	client.InsecureSkipVerify = true
	c := tls.Client(b, client)
	err = c.Handshake()
	if serverErr := <-failed; serverErr != nil {
		return "", serverErr
	}
	if err != nil {
		return "", err
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

func TestChangedCertificatesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	files, _ := issue(t, dir, "one")
	r := &reloader{files: files, log: hclog.NewNullLogger()}
	var err error
	r.config, r.seen, err = r.read()
	require.NoError(t, err)
	server := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		r.checked = time.Time{} // as if the time to look had come
		return r.current(time.Now()), nil
	}}
	name, err := shake(t, server, &tls.Config{})
	require.NoError(t, err)
	require.Equal(t, "one", name)

	issue(t, dir, "number two")
	name, err = shake(t, server, &tls.Config{})
	require.NoError(t, err)
	require.Equal(t, "number two", name)

	require.NoError(t, os.WriteFile(files.Key, []byte("broken"), 0o600))
	name, err = shake(t, server, &tls.Config{})
	require.NoError(t, err)
	require.Equal(t, "number two", name, "the earlier one stays")
}

func TestOldVersionsAndForeignClientsAreRefused(t *testing.T) {
	files, pair := issue(t, t.TempDir(), "one")
	cfg, err := Load(files, hclog.NewNullLogger())
	require.NoError(t, err)
	_, err = shake(t, cfg, &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	require.Error(t, err)

	files.CA = files.Cert
	cfg, err = Load(files, hclog.NewNullLogger())
	require.NoError(t, err)
	_, err = shake(t, cfg, &tls.Config{MaxVersion: tls.VersionTLS12})
	require.Error(t, err, "no certificate of the client")
	name, err := shake(t, cfg, &tls.Config{Certificates: []tls.Certificate{pair}})
	require.NoError(t, err)
	require.Equal(t, "one", name)
}

func TestUnusableFilesAreErrors(t *testing.T) {
	dir := t.TempDir()
	files, _ := issue(t, dir, "one")
	for _, bad := range []Files{{Cert: files.Cert, Key: filepath.Join(dir, "none")}, {Cert: files.Key, Key: files.Key}, {Cert: files.Cert, Key: files.Key, CA: files.Key}} {
		_, err := Load(bad, hclog.NewNullLogger())
		require.Error(t, err)
	}
}
