package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/transport/admin"
	"github.com/quorate/quorate/transport/auth"
	"github.com/quorate/quorate/transport/health"
	"github.com/quorate/quorate/transport/httpsync"
	"github.com/quorate/quorate/transport/judge"
	"github.com/quorate/quorate/transport/policy"
	"github.com/quorate/quorate/transport/ws"
)

// Backend is the cluster as clients use it; *partitions.Router is one.
type Backend interface {
	ws.Backend
	httpsync.Backend
	admin.Backend
}

// Server is the client listener of a node. Its life: New, Start, Open, Drain,
// Close.
type Server struct {
	cfg    Config
	deps   Deps
	log    hclog.Logger
	health *health.Monitor
	ws     *ws.Server
	sync   *httpsync.Handler
	admin  *admin.Handler
	guard  *policy.Guard
	// revoked are the subjects whose tokens verifier refuses; it is nil without authentication.
	revoked  auth.Revocations
	verifier ws.Verifier
	http     *http.Server

	metrics *metrics
	// plain counts the TCP connections that are not WebSocket connections.
	plain atomic.Int64
	// patterns are the routes that the listener takes.
	patterns []string
	// backend is set by Open.
	backend atomic.Pointer[Backend]

	// serving counts the goroutine that accepts and the one that follows the documents of
	// the cluster, which ends with stop.
	serving sync.WaitGroup
	stop    chan struct{}
	closing sync.Once
}

// New returns a Server that does not listen yet, or what is wrong with cfg.
func New(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure client listener: %w", err)
	}
	s := &Server{cfg: cfg, deps: deps, log: deps.Logger.Named("transport"), stop: make(chan struct{})}
	s.guard = policy.NewGuard(deps.Logger)
	if deps.Verifier != nil {
		s.verifier = verifying{Verifier: deps.Verifier, revoked: &s.revoked}
	}
	s.health = health.New(health.Deps{
		Now: deps.Now, CaughtUp: s.caughtUp,
		Connections: func() int { return s.ws.Connections() },
		InFlight:    func() int { return s.ws.InFlight() },
	})
	sockets, err := ws.New(cfg.WebSocket, ws.Deps{
		Logger: deps.Logger, Now: deps.Now, Verifier: s.verifier, Secret: deps.Secret, Guard: s.guard,
		Accepting: s.health.Accepting, Registerer: deps.Registerer,
	})
	if err != nil {
		return nil, err
	}
	s.ws, s.metrics = sockets, newMetrics(deps.Registerer)
	cfg.Sync.RatePerSecond, cfg.Sync.RateBurst = cfg.WebSocket.RatePerSecond, cfg.WebSocket.RateBurst
	cfg.Sync.Limits = judge.Limits{MaxValueBytes: cfg.WebSocket.MaxValueBytes, Timeout: cfg.WebSocket.OperationTimeout}
	s.sync = httpsync.New(cfg.Sync, httpsync.Deps{
		Logger: deps.Logger, Now: deps.Now, Verifier: verifier(s.verifier), Secret: deps.Secret, Guard: s.guard,
		Backend: s.accepting,
	})
	if s.admin, err = s.newAdmin(); err != nil {
		sockets.Close()
		return nil, err
	}
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: cfg.HeaderTimeout,
		ReadTimeout:       cfg.RequestTimeout,
		WriteTimeout:      2 * cfg.RequestTimeout, // counts from the end of the head
		IdleTimeout:       cfg.WebSocket.Connection.IdleTimeout,
		MaxHeaderBytes:    cfg.MaxHeaderBytes,
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // WebSocket needs HTTP/1.1
		ConnState:         s.count,
		ErrorLog:          s.log.Named("http").StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	return s, nil
}

// count follows the TCP connections that are not WebSocket connections, and closes a new one
// beyond the bound. Whoever keeps connections open must not take the files that the storage of
// the node needs.
func (s *Server) count(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if n := int(s.plain.Add(1)); s.cfg.MaxSockets > 0 && n+s.ws.Connections() > s.cfg.MaxSockets {
			s.metrics.turnedAway.Inc()
			_ = conn.Close() // StateClosed follows
		}
	case http.StateHijacked, http.StateClosed:
		s.plain.Add(-1)
	}
}

// Start binds the listener and answers probes and metrics from then on; everything
// else gets 503 until Open. It returns the port that was bound.
func (s *Server) Start() (port int, err error) {
	l, err := net.Listen("tcp", s.cfg.Addr)
	if err != nil {
		return 0, fmt.Errorf("listen for clients on %s: %w", s.cfg.Addr, err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.Join(fmt.Errorf("listen for clients on %s: not a TCP address", s.cfg.Addr), l.Close())
	}
	s.admin.SetPort(addr.Port)
	if s.cfg.TLS != nil {
		l = tls.NewListener(l, s.cfg.TLS)
	}
	s.serving.Add(1)
	go func() {
		defer s.serving.Done()
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("client listener failed", "err", err)
			if s.deps.Fatal != nil {
				s.deps.Fatal(fmt.Errorf("accept clients: %w", err))
			}
		}
	}()
	return addr.Port, nil
}

// Open starts taking clients, whose writes and queries go to backend. The readiness
// probe follows Deps.CaughtUp from now on. It is called once, after Start.
func (s *Server) Open(backend Backend) {
	s.backend.Store(&backend)
	s.follow()
	s.serving.Add(1)
	go func() {
		defer s.serving.Done()
		s.followAll(backend)
	}()
	s.ws.Open(backend)
	s.health.Advance(health.Ready)
}

// State is the node's state as /health shows it.
func (s *Server) State() health.State { return s.health.State() }

// Ready reports whether the readiness probe answers 200.
func (s *Server) Ready() bool { return s.health.Ready() }

// Drain turns readiness off, refuses new clients, lets writes under way finish and
// be acknowledged, and closes every client connection; probes are still answered.
// It returns when no client is left, or ws.ErrDrainTimeout when ctx ends first and
// the rest was cut.
func (s *Server) Drain(ctx context.Context) error {
	s.health.Advance(health.Draining)
	return errors.Join(s.ws.Drain(ctx), s.sync.Drain(ctx))
}

// accepting returns the cluster for a request, nil if none is to be taken now.
func (s *Server) accepting() httpsync.Backend {
	b := s.backend.Load()
	if b == nil || !s.health.Accepting() {
		return nil
	}
	return *b
}

// verifier is v for requests; a nil one stays nil.
func verifier(v ws.Verifier) httpsync.Verifier {
	if v == nil {
		return nil
	}
	return v
}

// Close cuts what is left and closes the listener. It returns when nothing of the
// Server runs.
func (s *Server) Close() error {
	s.health.Advance(health.Stopped)
	s.closing.Do(func() { close(s.stop) })
	s.ws.Close()
	err := s.http.Close()
	s.serving.Wait()
	if err != nil {
		return fmt.Errorf("close client listener: %w", err)
	}
	return nil
}
