package quorate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/transport"
	"github.com/quorate/quorate/transport/admin"
	"github.com/quorate/quorate/transport/auth"
)

const (
	// drainTimeout is how long Serve waits for operations under way, clients, other
	// nodes and the store when it ends.
	drainTimeout = 30 * time.Second
	// failedDrain is the same when the node has failed: what is under way cannot
	// finish, and clients only need to hear that they should go elsewhere.
	failedDrain = 3 * time.Second
	lingerTime  = 500 * time.Millisecond
)

// Deps are what a Server works with. All may be left out.
type Deps struct {
	// Logger takes the log. Nil discards it.
	Logger hclog.Logger
	// Registry takes the metrics, which /metrics shows. Nil means one of its own.
	Registry *prometheus.Registry
	// LogFilter is the filter of Logger, which the settings show; SetLogFilter changes it
	// when the settings are changed, CheckLogFilter says why one cannot be used. Nil
	// functions leave the log as it is.
	LogFilter      string
	SetLogFilter   func(filter string) error
	CheckLogFilter func(filter string) error
	// LogTail returns the end of the log, for support bundles. Nil has none.
	LogTail func() string
}

// Server is one node with its client listener. Its life: New, Start, Serve, Close.
type Server struct {
	cfg       ServerConfig
	log       hclog.Logger
	registry  *prometheus.Registry
	started   time.Time
	transport *transport.Server
	port      int
	// logTail is Deps.LogTail.
	logTail func() string
	// pool is to the database of the cluster, if the server made it.
	pool *pgxpool.Pool

	// mu protects node.
	mu sync.RWMutex
	// node is nil until Serve has opened it.
	node *Node
	// fatal takes the failure of the client listener. Capacity 1.
	fatal chan error
	// drainAsked takes the wish of an operator that the node stops. Capacity 1.
	drainAsked chan struct{}
	// leaving counts the operators who wait to hear that the node has left.
	leaving atomic.Int32
}

// New checks cfg and prepares a Server. It touches neither disk nor network. The
// error joins a *FieldError for every problem.
func New(cfg ServerConfig, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: deps.Logger, registry: deps.Registry, started: time.Now(), fatal: make(chan error, 1), drainAsked: make(chan struct{}, 1), logTail: deps.LogTail}
	if s.log == nil {
		s.log = hclog.NewNullLogger()
	}
	if s.registry == nil {
		s.registry = newRegistry()
	}
	td, err := s.transportDeps(deps)
	if err != nil {
		return nil, err
	}
	tc := cfg.transportConfig()
	tc.Admin.Defaults.LogLevel = deps.LogFilter
	if tc.TLS, err = cfg.tlsConfig(s.log); err != nil {
		return nil, err
	}
	if s.transport, err = transport.New(tc, td); err != nil {
		return nil, err
	}
	if err := s.registry.Register(newNodeCollector(s)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return s, nil
}

// transportDeps are what the client listener works with.
func (s *Server) transportDeps(deps Deps) (transport.Deps, error) {
	td := transport.Deps{
		Logger: s.log, Now: unixMillis, CaughtUp: s.caughtUp, Cluster: operators{s},
		Apply: s.applier(deps.SetLogFilter), CheckLog: deps.CheckLogFilter,
		Registerer: s.registry, Gatherer: s.registry, Fatal: s.listenerFailed,
	}
	var err error
	if td.Tokens, err = auth.NewAdmin([]byte(s.cfg.Security.JWTSecret), unixMillis); err != nil {
		return td, err
	}
	if !s.cfg.Security.NoAuth {
		td.Secret = []byte(s.cfg.Security.JWTSecret)
		verifier, err := s.cfg.verifier(s.log, unixMillis, td.Tokens)
		if err != nil {
			return td, err
		}
		td.Verifier = verifier
	}
	return td, nil
}

// applier puts changed settings into force that are not the listener's.
func (s *Server) applier(setLogFilter func(string) error) func(admin.Runtime) error {
	return func(r admin.Runtime) error {
		if node := s.current(); node != nil {
			node.Router().SetCollectInterval(time.Duration(r.GCIntervalMs) * time.Millisecond)
		}
		if setLogFilter != nil {
			return setLogFilter(r.LogLevel)
		}
		return nil
	}
}

// Start binds the client listener and returns its port. From then on the probes
// answer, and clients are told that the node is starting. Serve follows.
func (s *Server) Start() (port int, err error) {
	s.logLimits()
	s.port, err = s.transport.Start()
	if err != nil {
		return 0, err
	}
	return s.port, nil
}

// Serve opens the store, recovers, forms or joins the cluster, and serves clients.
// When ctx ends it drains, for at most 30 s, and returns nil. Errors: what kept
// the node from opening; *RefusedError; one that wraps ErrStorageFailed; a failure
// of the listener. It is called once, after Start; Close follows.
func (s *Server) Serve(ctx context.Context) error {
	node, err := s.openNode(ctx)
	if s.pool != nil {
		defer s.pool.Close()
	}
	if err != nil {
		return err
	}
	runCtx, stop := context.WithCancel(context.Background())
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- node.Run(runCtx) }()
	s.transport.Open(node.Router())
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		s.announce(runCtx, node)
	}()
	running, err := s.wait(ctx, ran)
	timeout := drainTimeout
	if err != nil {
		timeout = failedDrain
	}
	drainCtx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s.drain(drainCtx, node, running && err == nil)
	stop()
	if running {
		err = errors.Join(err, <-ran)
	} else if err == nil {
		s.linger()
	}
	<-announced
	err = s.closeNode(drainCtx, node, err)
	s.log.Info("stopped")
	return err
}

// linger gives the news that this node has left the cluster time to reach the
// operators who asked for it.
func (s *Server) linger() {
	s.log.Info("this node has left its cluster for good")
	if s.leaving.Load() > 0 {
		time.Sleep(lingerTime)
	}
}

// openNode opens the store and the parts of the node.
func (s *Server) openNode(ctx context.Context) (*Node, error) {
	store, err := s.cfg.openStore(s.log)
	if err != nil {
		return nil, err
	}
	table, err := s.openTable(ctx, store)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	cfg := s.cfg.nodeConfig(s.port)
	if err := stress(&cfg); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	node, err := OpenNode(cfg, NodeDeps{
		Logger: s.log, Registerer: s.registry, LogFS: s.cfg.logFS(), Store: store, Table: table, Physical: unixMillis,
	})
	if err != nil {
		return nil, err
	}
	s.handleOperators(node)
	if err := s.writeAddress(node); err != nil {
		return nil, errors.Join(err, node.Close(context.Background()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = node
	return node, nil
}

// wait blocks until something ends the node, and reports whether it still runs.
func (s *Server) wait(ctx context.Context, ran <-chan error) (running bool, err error) {
	select {
	case <-ctx.Done():
		return true, nil
	case <-s.drainAsked:
		s.log.Info("draining", "asked by", "operator")
		return true, nil
	case err := <-s.fatal:
		return true, err
	case err := <-ran:
		return false, err
	}
}

// drain lets clients and the other nodes part with this one in good order. A node
// that does not run any more has nothing to hand over.
func (s *Server) drain(ctx context.Context, node *Node, running bool) {
	if err := s.transport.Drain(ctx); err != nil {
		s.log.Warn("clients were cut at the end of the drain", "err", err)
	}
	if !running {
		return
	}
	if err := node.Drain(ctx); err != nil {
		s.log.Warn("leadership was not handed over", "err", err)
	}
}

// closeNode flushes and releases the node, which ended with cause. What the final
// flush could not write in time is in the log, so that is no failure of the stop.
func (s *Server) closeNode(ctx context.Context, node *Node, cause error) error {
	s.removeAddress()
	err := node.Close(ctx)
	switch {
	case cause != nil:
		if err != nil {
			s.log.Error("node was not closed cleanly", "err", err)
		}
		return cause
	case errors.Is(err, context.DeadlineExceeded):
		s.log.Warn("the store was not flushed in time; the log has the rest", "err", err)
		return nil
	case err != nil:
		return storageFailed(fmt.Errorf("close node: %w", err))
	default:
		return nil
	}
}

func (s *Server) listenerFailed(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

// current returns the node, nil while it is not open.
func (s *Server) current() *Node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.node
}

func (s *Server) caughtUp() bool {
	node := s.current()
	return node != nil && node.CaughtUp()
}

// Close releases the listener, cutting clients that are left. After Serve nothing
// else is held; before it, nothing else was.
func (s *Server) Close() error { return s.transport.Close() }
