package mux

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Mux is one node's end of the peer network. Create it with Open.
type Mux struct {
	cfg      Config
	deps     Deps
	log      hclog.Logger
	metrics  *metrics
	id       raft.ServerID // of this node, empty for a tool
	listener net.Listener  // nil for a tool
	addr     string        // what peers dial, empty for a tool

	serverTLS, clientTLS *tls.Config // nil without a secret

	handlers map[Method]Handler // not changed after Start
	conns    *connSet
	greeting *handshakes
	warned   onceSet

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // all goroutines; added to while mu is held and closed is false

	mu        sync.RWMutex // protects the fields below and the entries of book
	started   bool
	closed    bool
	clusterID string
	book      map[raft.ServerID]*entry
	refused   map[raft.ServerID]bool
	layers    map[uint32]*streamLayer
}

// Open binds the port and prepares everything; nothing is served before Start. It
// fails when the configuration is not valid or the address is taken.
func Open(cfg Config, deps Deps) (*Mux, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("peer network configuration: %w", err)
	}
	if deps.Network == nil {
		deps.Network = TCP{}
	}
	if deps.Logger == nil {
		deps.Logger = hclog.NewNullLogger()
	}
	m := &Mux{
		cfg: cfg, deps: deps, log: deps.Logger,
		id:       serverID(cfg.NodeID, cfg.Incarnation),
		handlers: make(map[Method]Handler),
		greeting: newHandshakes(cfg.MaxHandshakes),
		book:     make(map[raft.ServerID]*entry),
		refused:  make(map[raft.ServerID]bool),
		layers:   make(map[uint32]*streamLayer),
	}
	if len(cfg.Secret) > 0 {
		a, err := newAuthority(cfg.Secret)
		if err != nil {
			return nil, err
		}
		if m.serverTLS, m.clientTLS, err = a.configs(cfg.NodeID, always()); err != nil {
			return nil, err
		}
	}
	var err error
	if m.metrics, err = newMetrics(deps.Registerer); err != nil {
		return nil, err
	}
	m.conns = newConnSet(m.metrics.conns)
	if err := m.bind(); err != nil {
		m.metrics.unregister()
		return nil, err
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

func (m *Mux) bind() error {
	if m.cfg.ListenAddr == "" {
		return nil
	}
	listener, err := m.deps.Network.Listen(m.cfg.ListenAddr)
	if err != nil {
		return fmt.Errorf("bind cluster port %s: %w", m.cfg.ListenAddr, err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err == nil {
		m.addr, err = m.cfg.advertise(port)
	}
	if err != nil {
		_ = listener.Close()
		return fmt.Errorf("bind cluster port %s: %w", m.cfg.ListenAddr, err)
	}
	m.listener = listener
	return nil
}

// ID returns the server id of this node, empty for a tool.
func (m *Mux) ID() raft.ServerID { return m.id }

// Addr returns the host:port under which peers reach this node, empty if they cannot.
func (m *Mux) Addr() string { return m.addr }

// ClusterID returns what SetClusterID has set last.
func (m *Mux) ClusterID() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.clusterID
}

// SetClusterID says to which cluster this node belongs; "" until it belongs to one.
// An id has at most 255 bytes. Connections with members of another cluster are closed.
func (m *Mux) SetClusterID(id string) {
	m.mu.Lock()
	m.clusterID = id
	m.mu.Unlock()
	if id == "" {
		return
	}
	m.conns.abort(func(c *peerConn) bool { return c.peer.ClusterID != "" && c.peer.ClusterID != id })
}

// Handle registers the handler of a method. It panics when the method has one, or
// after Start.
func (m *Mux) Handle(method Method, h Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started {
		panic(fmt.Sprintf("mux: method %d registered after Start", method))
	}
	if m.handlers[method] != nil {
		panic(fmt.Sprintf("mux: method %d registered twice", method))
	}
	m.handlers[method] = h
}

// Start begins to serve. Calls out are possible before, and a tool that is not
// dialed need not call it. Only the first call has an effect.
func (m *Mux) Start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started || m.closed || m.listener == nil {
		return
	}
	m.started = true
	m.running.Go(m.acceptLoop)
}

// Close closes the port and all connections, ends the contexts of running handlers,
// and waits for them and for all goroutines. A handler must not call it. Close the
// Raft transports first: they log what they cannot accept. It always returns nil.
func (m *Mux) Close() error {
	m.mu.Lock()
	first := !m.closed
	m.closed = true
	layers := make([]*streamLayer, 0, len(m.layers))
	for _, l := range m.layers {
		layers = append(layers, l)
	}
	m.mu.Unlock()
	if first {
		m.cancel()
		if m.listener != nil {
			// Nothing depends on what the system says to this.
			_ = m.listener.Close()
		}
		m.greeting.close()
		for _, l := range layers {
			_ = l.Close()
		}
		m.conns.close()
		m.metrics.unregister()
	}
	m.running.Wait()
	return nil
}

// spawn runs f in a goroutine that Close waits for, unless the Mux is closed.
func (m *Mux) spawn(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.running.Go(f)
	return true
}
