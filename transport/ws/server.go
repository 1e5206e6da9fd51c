package ws

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"
	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/partitions/workers"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/auth"
	"github.com/quorate/quorate/transport/httperr"
	"github.com/quorate/quorate/transport/judge"
	"github.com/quorate/quorate/transport/policy"
)

// idleWorkers is how many goroutines wait for the next frame of writes.
const idleWorkers = 128

// Server is the WebSocket endpoint of a node and the owner of its connections. It
// is an http.Handler for upgrade requests. Until Open it answers them with 503.
type Server struct {
	cfg     Config
	deps    Deps
	log     hclog.Logger
	metrics *metrics
	gate    *gate
	limits  judge.Limits
	buffers bufferPool
	idBase  string
	ids     atomic.Uint64

	// changing is the limits that can be changed.
	changing atomic.Pointer[Limits]
	// revoked tells who is shut out, nil while nobody is.
	revoked atomic.Pointer[func(auth.Principal) bool]

	// base is the parent of all writes' contexts; it outlives their connections
	// and ends with Close.
	base   context.Context
	cancel context.CancelFunc
	// conns counts the connections, from the reservation of their upgrade on;
	// background counts the pushers.
	conns, background sync.WaitGroup
	// workers run the tasks of all connections.
	workers *workers.Pool
	// syncSlots has room for the sync requests that are read for at a time.
	syncSlots chan struct{}
	// querySlots has room for the queries that are read for at a time; windowBytes is what
	// the windows of live queries keep.
	querySlots  chan struct{}
	windowBytes atomic.Int64
	// syncsWaiting counts the sync requests that wait for their answers.
	syncsWaiting atomic.Int64

	// mu protects the fields below.
	mu       sync.Mutex
	backend  Backend
	open     map[*conn]struct{}
	perAddr  map[string]int
	reserved int // upgrades under way
	draining bool
	unwatch  func()

	partitionMap mapCache
	counters     counterFeeds
	topics       topicIndex
	// reader reads what is shown to many connections; set by Open.
	reader *partitions.Session
}

// New returns a Server, or what is wrong with cfg. Close releases it.
func New(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure websocket server: %w", err)
	}
	var random [6]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("draw connection id prefix: %w", err)
	}
	base, cancel := context.WithCancel(context.Background())
	s := &Server{
		cfg: cfg, deps: deps, log: deps.Logger.Named("ws"),
		idBase: "c-" + hex.EncodeToString(random[:]) + "-",
		base:   base, cancel: cancel,
		open: map[*conn]struct{}{}, perAddr: map[string]int{},
		workers:   workers.New(idleWorkers),
		limits:    judge.Limits{MaxValueBytes: cfg.MaxValueBytes, Timeout: cfg.OperationTimeout},
		syncSlots: make(chan struct{}, cfg.ConcurrentSyncs), querySlots: make(chan struct{}, cfg.ConcurrentQueries),
	}
	if s.deps.Guard == nil {
		s.deps.Guard = policy.NewGuard(deps.Logger)
	}
	s.changing.Store(&Limits{
		ConcurrentOperations: cfg.MaxConcurrentOperations, Connections: cfg.MaxConnections, OperationsPerSecond: cfg.RatePerSecond,
	})
	s.gate = newGate(cfg)
	s.metrics = newMetrics(deps.Registerer, s)
	return s, nil
}

// Open starts taking connections that use backend. It is called once.
func (s *Server) Open(backend Backend) {
	s.reader = backend.NewSession()
	backend.ReceiveTopics(s.deliverTopic)
	changed, collected := make(chan struct{}, 1), make(chan struct{}, 1)
	// A push that is due shows later changes too.
	note := func(ch chan struct{}) func() {
		return func() {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
	cancelMap, cancelHorizon := backend.MapChanged(note(changed)), backend.HorizonChanged(note(collected))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backend, s.unwatch = backend, func() { cancelMap(); cancelHorizon() }
	s.background.Go(func() { s.pushMaps(backend, changed) })
	s.background.Go(func() { s.pushPrunes(backend, collected) })
}

// Connections is the number of open connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// InFlight is the number of writes and queries under way.
func (s *Server) InFlight() int { return s.gate.inUse() }

// ServeHTTP upgrades a request to a WebSocket connection. Refusals: 403 for a page
// of a foreign origin, 426 for a request that is no upgrade, 503 before Open, while
// draining, when Deps.Accepting says no, and at the bounds on connections.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !OriginAllowed(r, s.cfg.AllowedOrigins) {
		s.metrics.limit("origin")
		s.log.Info("upgrade from a foreign origin refused; add it to the allowed origins if it is yours",
			"origin", strconv.Quote(r.Header.Get("Origin")), "host", strconv.Quote(r.Host))
		httperr.Write(w, http.StatusForbidden, "origin is not allowed")
		return
	}
	if !isUpgrade(r) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		httperr.Write(w, http.StatusUpgradeRequired, "this is a WebSocket endpoint")
		return
	}
	if s.deps.Accepting != nil && !s.deps.Accepting() {
		httperr.Unavailable(w, "server is not ready")
		return
	}
	addr := remoteIP(r)
	backend, reason := s.reserve(addr)
	if reason != "" {
		httperr.Unavailable(w, reason)
		return
	}
	h := &hijacker{ResponseWriter: w, cfg: s.cfg.Connection, pool: &s.buffers}
	sock, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the origin was checked above, by our own rule
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		s.log.Debug("upgrade failed", "err", err)
		s.release(addr)
		return
	}
	sock.SetReadLimit(protocol.MaxFrame)
	s.start(newConn(s, backend, sock, h.conn, addr))
}

// reserve counts a connection that is about to open, or says why it may not.
func (s *Server) reserve(addr string) (Backend, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := len(s.open) + s.reserved
	switch {
	case s.backend == nil:
		return nil, "server is starting"
	case s.draining:
		return nil, "server is shutting down"
	case s.reached(total):
		s.metrics.limit("connections")
		return nil, "too many connections"
	case s.cfg.MaxConnectionsPerAddress > 0 && s.perAddr[addr] >= s.cfg.MaxConnectionsPerAddress:
		s.metrics.limit("address")
		return nil, "too many connections from your address"
	}
	s.reserved++
	s.perAddr[addr]++
	s.conns.Add(1)
	return s.backend, ""
}

func (s *Server) release(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved--
	s.forgetAddrLocked(addr)
	s.conns.Done()
}

func (s *Server) forgetAddrLocked(addr string) {
	if s.perAddr[addr]--; s.perAddr[addr] == 0 {
		delete(s.perAddr, addr)
	}
}

// start runs c. One that was upgraded while the drain began is drained too.
func (s *Server) start(c *conn) {
	s.mu.Lock()
	s.reserved--
	s.open[c] = struct{}{}
	draining := s.draining
	s.mu.Unlock()
	if draining {
		c.end(closeDrained, protocol.CloseShutdown, reasonShutdown)
	}
	go func() {
		defer s.conns.Done()
		c.run()
	}()
}

// forget removes a connection that has closed.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	s.forgetAddrLocked(c.addr)
}

// all lists the open connections.
func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*conn, 0, len(s.open))
	for c := range s.open {
		list = append(list, c)
	}
	return list
}

// Drain refuses new connections, stops reading, lets what was begun finish and be
// answered, sends every client a Close frame and waits for it to answer. It returns
// when no connection is left. When ctx ends first it cuts the rest and returns
// ErrDrainTimeout.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	if s.unwatch != nil {
		s.unwatch()
		s.unwatch = nil
	}
	s.mu.Unlock()
	for _, c := range s.all() {
		c.end(closeDrained, protocol.CloseShutdown, reasonShutdown)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.conns.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	left := s.all()
	for _, c := range left {
		c.cut()
	}
	s.cancel()
	<-done
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d of them", ErrDrainTimeout, len(left))
}

// Close cuts every connection and waits until nothing of the Server runs. Writes
// under way are abandoned. Use Drain first to be polite.
func (s *Server) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Drain(ctx) // the cut is what was asked for
	s.cancel()
	s.background.Wait()
	s.workers.Close()
}

func isUpgrade(r *http.Request) bool {
	return headerHas(r.Header, "Connection", "upgrade") && headerHas(r.Header, "Upgrade", "websocket")
}

func headerHas(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for part := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

func remoteIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
