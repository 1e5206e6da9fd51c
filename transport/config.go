package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/transport/admin"
	"github.com/quorate/quorate/transport/auth"
	"github.com/quorate/quorate/transport/httpsync"
	"github.com/quorate/quorate/transport/ws"
)

// Config tunes a Server. Use DefaultConfig and set Addr and WebSocket.NodeID.
type Config struct {
	// Addr is the address to listen on, host:port; port 0 lets the system choose.
	Addr string
	// HeaderTimeout is how long a client may take to send the head of a request,
	// MaxHeaderBytes how long that may be.
	HeaderTimeout  time.Duration
	MaxHeaderBytes int
	// RequestTimeout bounds reading a request and, again, writing its answer. It
	// does not apply to WebSocket connections.
	RequestTimeout time.Duration
	// MaxSockets bounds the TCP connections of the listener, of whatever they are for; one
	// beyond is closed when it is accepted. Zero means no bound.
	MaxSockets int
	// MaxBodyBytes bounds the body of a request, refused with 413 beyond.
	MaxBodyBytes int64
	// WebSocket tunes client connections.
	WebSocket ws.Config
	// TLS encrypts the listener; nil is plain.
	TLS *tls.Config
	// Admin tunes what operators see and change. Its origins are those of WebSocket.
	Admin admin.Config
	// Sync tunes POST /sync. Its limits and rate of operations are those of WebSocket.
	Sync httpsync.Config
}

// DefaultConfig is the configuration for production, without addresses and ids.
func DefaultConfig() Config {
	return Config{
		HeaderTimeout:  10 * time.Second,
		MaxHeaderBytes: 32 << 10,
		RequestTimeout: 30 * time.Second,
		MaxBodyBytes:   2 << 20,
		WebSocket:      ws.DefaultConfig(),
		Admin:          admin.DefaultConfig(),
		Sync:           httpsync.DefaultConfig(),
	}
}

// Validate reports all problems of c at once.
func (c Config) Validate() error {
	var errs []error
	if c.Addr == "" {
		errs = append(errs, errors.New("listen address is missing"))
	}
	for name, v := range map[string]int64{
		"header timeout": int64(c.HeaderTimeout), "header bytes": int64(c.MaxHeaderBytes),
		"request timeout": int64(c.RequestTimeout), "body bytes": c.MaxBodyBytes,
	} {
		if v <= 0 {
			errs = append(errs, fmt.Errorf("%s must be positive, not %d", name, v))
		}
	}
	return errors.Join(append(errs, c.WebSocket.Validate(), c.Admin.Validate(), c.Sync.Validate())...)
}

// Deps are the collaborators of a Server. Logger, Now, Tokens, Cluster, Registerer and
// Gatherer are required.
type Deps struct {
	Logger hclog.Logger
	// Now is the wall clock in milliseconds since 1970.
	Now func() int64
	// Verifier checks the tokens of clients. Nil switches authentication off.
	Verifier ws.Verifier
	// Secret is that which signs the tokens of clients; empty without authentication.
	Secret []byte
	// Tokens are those of operators, Cluster what they see of nodes.
	Tokens  *auth.Admin
	Cluster admin.Cluster
	// Apply puts changed settings into force beyond the listener, CheckLog says why a log
	// filter cannot be used. Nil does nothing.
	Apply    func(admin.Runtime) error
	CheckLog func(filter string) error
	// CaughtUp reports whether the node can serve at present; see health.Deps. Nil
	// is always.
	CaughtUp func() bool
	// Registerer takes the metrics of this package, Gatherer is what /metrics shows.
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer
	// Fatal is told when the listener fails for good: no client reaches the node
	// any more. Nil leaves it at the log.
	Fatal func(error)
}
