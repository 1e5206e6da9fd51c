package mux

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func mustAuthority(t *testing.T, secret string) *authority {
	t.Helper()
	a, err := newAuthority([]byte(secret))
	require.NoError(t, err)
	return a
}

func TestAuthorityIsAFunctionOfTheSecret(t *testing.T) {
	a, b, other := mustAuthority(t, "secret"), mustAuthority(t, "secret"), mustAuthority(t, "Secret")
	require.Equal(t, a.cert.PublicKey, b.cert.PublicKey)
	require.NotEqual(t, a.cert.PublicKey, other.cert.PublicKey)
	// Nodes of all releases must derive the same key.
	require.Equal(t, "7a88c95ae8cbf061b2b06d525b0b58f93f7b7492414b375a04da25da86292ca2", hex.EncodeToString(a.cert.PublicKey.(ed25519.PublicKey)))
}

func TestCertificateNamesTheNode(t *testing.T) {
	a := mustAuthority(t, "secret")
	for _, id := range []string{"n1", "", "node/with?odd #chars%41", "узел", "\xff\x00"} {
		cert, err := a.issue(id, always())
		require.NoError(t, err)
		leaf, err := x509.ParseCertificate(cert.Certificate[0])
		require.NoError(t, err)
		_, err = leaf.Verify(x509.VerifyOptions{Roots: a.pool, DNSName: peerName, CurrentTime: time.Unix(1, 0)})
		require.NoError(t, err, "a clock that starts in 1970 is no problem")
		if id == "" {
			require.Empty(t, leaf.URIs)
		} else {
			require.Equal(t, "/"+id, leaf.URIs[0].Path)
		}
	}
}

// handshakeTLS runs both sides of a TLS handshake and returns their errors. Each side
// reads once, because the verdict about the dialer's certificate comes late.
func handshakeTLS(server, client *tls.Config) (serverErr, clientErr error) {
	near, far := net.Pipe()
	defer near.Close()
	ended := make(chan error, 1)
	go func() {
		defer far.Close()
		c := tls.Server(far, server)
		err := secretError(c.Handshake())
		if err == nil {
			_, err = c.Write([]byte{1})
		}
		ended <- err
	}()
	c := tls.Client(near, client)
	clientErr = secretError(c.Handshake())
	if clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1))
	}
	near.Close()
	return <-ended, clientErr
}

func TestTLSAcceptsOnlyTheSameAuthority(t *testing.T) {
	now := time.Now()
	expired := validity{from: now.Add(-2 * time.Hour), to: now.Add(-time.Hour)}
	tests := map[string]struct {
		server, client            string
		serverValid, clientValid  validity
		works, secretAtClient     bool
		clientSkips, secretServer bool
	}{
		"same secret":                    {server: "s", client: "s", serverValid: always(), clientValid: always(), works: true},
		"other secret":                   {server: "s", client: "t", serverValid: always(), clientValid: always(), secretAtClient: true, secretServer: true},
		"other secret, unchecked server": {server: "s", client: "t", serverValid: always(), clientValid: always(), clientSkips: true, secretServer: true},
		"expired server":                 {server: "s", client: "s", serverValid: expired, clientValid: always(), secretServer: true},
		"expired client":                 {server: "s", client: "s", serverValid: always(), clientValid: expired},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server, _, err := mustAuthority(t, test.server).configs("n1", test.serverValid)
			require.NoError(t, err)
			_, client, err := mustAuthority(t, test.client).configs("n2", test.clientValid)
			require.NoError(t, err)
			client.InsecureSkipVerify = test.clientSkips
			serverErr, clientErr := handshakeTLS(server, client)
			if test.works {
				require.NoError(t, serverErr)
				require.NoError(t, clientErr)
				return
			}
			require.Error(t, serverErr)
			require.Error(t, clientErr)
			require.Equal(t, test.secretServer, errors.Is(serverErr, ErrWrongSecret), "%v", serverErr)
			require.Equal(t, test.secretAtClient, errors.Is(clientErr, ErrWrongSecret), "%v", clientErr)
		})
	}
}

func TestTLSRefusesOlderVersionsAndNoCertificate(t *testing.T) {
	a := mustAuthority(t, "secret")
	server, client, err := a.configs("n1", always())
	require.NoError(t, err)
	old := client.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	serverErr, _ := handshakeTLS(server, old)
	require.Error(t, serverErr)
	bare := client.Clone()
	bare.Certificates = nil
	serverErr, clientErr := handshakeTLS(server, bare)
	require.Error(t, serverErr)
	require.Error(t, clientErr)
}
