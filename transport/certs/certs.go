// Package certs makes the TLS configuration of the client listener from files, and reads
// them again when they change, so that certificates are renewed without a restart.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// checkEvery is how often the files are looked at, at most.
const checkEvery = time.Second

// Files names PEM files.
type Files struct {
	Cert, Key string
	// CA, when set, demands client certificates signed by this authority.
	CA string
}

// Load returns the configuration for a listener: TLS 1.2 or newer, with the certificate
// that the files hold when a client connects. Files that cannot be used any more leave the
// earlier ones in force, with an error in the log. The error is that of the first reading.
func Load(files Files, logger hclog.Logger) (*tls.Config, error) {
	r := &reloader{files: files, log: logger.Named("tls")}
	first, seen, err := r.read()
	if err != nil {
		return nil, err
	}
	r.config, r.seen, r.checked = first, seen, time.Now()
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         first.NextProtos,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.current(time.Now()), nil },
	}, nil
}

type reloader struct {
	files Files
	log   hclog.Logger

	// mu protects the fields below.
	mu      sync.Mutex
	config  *tls.Config
	seen    stamp
	checked time.Time
}

// stamp tells one state of the files from another.
type stamp [3]struct {
	modified time.Time
	size     int64
}

// current is the configuration in force; it reads the files again if they changed.
func (r *reloader) current(now time.Time) *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.checked) < checkEvery {
		return r.config
	}
	r.checked = now
	seen, err := r.files.stamp()
	if err == nil && seen == r.seen {
		return r.config
	}
	if err == nil {
		var next *tls.Config
		if next, seen, err = r.read(); err == nil {
			r.config, r.seen = next, seen
			r.log.Info("certificate read again", "file", r.files.Cert)
			return r.config
		}
	}
	r.log.Error("changed certificate cannot be used, the earlier one stays", "file", r.files.Cert, "err", err)
	return r.config
}

func (f Files) stamp() (s stamp, err error) {
	for i, name := range []string{f.Cert, f.Key, f.CA} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return s, fmt.Errorf("look at TLS file: %w", err)
		}
		s[i].modified, s[i].size = info.ModTime(), info.Size()
	}
	return s, nil
}

// read makes a configuration of the files as they are.
func (r *reloader) read() (*tls.Config, stamp, error) {
	seen, err := r.files.stamp() // before reading: a later change is seen as one
	if err != nil {
		return nil, seen, err
	}
	cert, err := tls.LoadX509KeyPair(r.files.Cert, r.files.Key)
	if err != nil {
		return nil, seen, fmt.Errorf("read certificate %s and key %s: %w", r.files.Cert, r.files.Key, err)
	}
	// WebSocket connections take HTTP/1.1 over.
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	if r.files.CA == "" {
		return cfg, seen, nil
	}
	pem, err := os.ReadFile(r.files.CA)
	if err != nil {
		return nil, seen, fmt.Errorf("read authority of client certificates: %w", err)
	}
	cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, seen, fmt.Errorf("read authority of client certificates: %w", errors.New(r.files.CA+" holds no certificate"))
	}
	return cfg, seen, nil
}
