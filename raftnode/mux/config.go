package mux

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
)

// Config says who this node is and what it allows its peers. Start from
// DefaultConfig; only the fields marked optional may be zero.
type Config struct {
	// ListenAddr is the host:port to bind; port 0 lets the system choose. Optional:
	// empty means that nobody can dial this node, as is right for a tool.
	ListenAddr string
	// NodeID and Incarnation name this node and this life of its data; together they
	// are its server id. Optional: both empty for a tool that is no member.
	NodeID, Incarnation string
	// Advertise is the host, or host:port, under which peers reach this node; without
	// a port the bound one is added. Optional: empty means the host of ListenAddr,
	// which must then be a particular one.
	Advertise string
	// Secret authenticates and encrypts: all nodes of a cluster have the same.
	// Optional: empty means plain TCP and trust in whoever can reach the port.
	Secret []byte

	// HandshakeTimeout bounds the time from a dial, or an accepted connection, to the
	// end of its handshake.
	HandshakeTimeout time.Duration
	// CallTimeout bounds calls whose context has no deadline.
	CallTimeout time.Duration
	// PingInterval is the time between signs of life on call connections. A peer that
	// moves no byte for PeerTimeout is given up, and its calls end.
	PingInterval, PeerTimeout time.Duration

	// MaxMessage limits the body of a request or reply, in bytes. A peer that sends
	// more is disconnected, so all nodes need the same limit.
	MaxMessage int
	// MaxCalls is how many calls one peer may have in progress here. The peer keeps to
	// it: further calls wait there, unsent. While handlers of abandoned calls still
	// run, up to twice as many can be running; beyond that calls get CodeBusy.
	MaxCalls int
	// MaxConns limits inbound connections; further ones are refused.
	MaxConns int
	// MaxHandshakes limits inbound connections that have not greeted yet. When there
	// are more, the oldest is closed: a node greets at once, a scanner does not.
	MaxHandshakes int
}

// DefaultConfig returns the values that suit a cluster in one region. ListenAddr,
// the node's identity and Secret are left empty.
func DefaultConfig() Config {
	return Config{
		HandshakeTimeout: 5 * time.Second,
		CallTimeout:      3 * time.Second,
		PingInterval:     time.Second,
		PeerTimeout:      5 * time.Second,
		MaxMessage:       8 << 20,
		MaxCalls:         1024,
		MaxConns:         1024,
		MaxHandshakes:    128,
	}
}

// Validate reports all problems of the configuration at once.
func (c Config) Validate() error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, f := range []struct{ name, value string }{
		{"NodeID", c.NodeID}, {"Incarnation", c.Incarnation},
	} {
		if len(f.value) > maxName {
			wrong("%s is longer than %d bytes", f.name, maxName)
		}
	}
	if (c.NodeID == "") != (c.Incarnation == "") {
		wrong("NodeID and Incarnation must both be set, or neither")
	}
	if len(c.NodeID)+1+len(c.Incarnation) > maxName {
		wrong("NodeID and Incarnation are longer than %d bytes together", maxName-1)
	}
	if strings.Contains(c.Incarnation, "#") {
		wrong("Incarnation %q contains '#'", c.Incarnation)
	}
	if c.ListenAddr != "" {
		if c.NodeID == "" {
			wrong("a node that listens needs a NodeID")
		}
		if addr, err := c.advertise("65535"); err != nil {
			problems = append(problems, err)
		} else if len(addr) > maxName {
			wrong("advertised address is longer than %d bytes", maxName)
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"HandshakeTimeout", c.HandshakeTimeout}, {"CallTimeout", c.CallTimeout},
		{"PingInterval", c.PingInterval}, {"PeerTimeout", c.PeerTimeout},
	} {
		if f.value <= 0 {
			wrong("%s must be positive", f.name)
		}
	}
	if c.PeerTimeout < 2*c.PingInterval {
		wrong("PeerTimeout must be at least twice PingInterval")
	}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"MaxCalls", c.MaxCalls}, {"MaxConns", c.MaxConns}, {"MaxHandshakes", c.MaxHandshakes},
	} {
		if f.value < 1 || f.value > math.MaxUint16 {
			wrong("%s must be between 1 and %d", f.name, math.MaxUint16)
		}
	}
	if c.MaxMessage < 1 || c.MaxMessage > 1<<30 {
		wrong("MaxMessage must be between 1 and %d", 1<<30)
	}
	return errors.Join(problems...)
}

// advertise returns the address that peers dial, given the bound port.
func (c Config) advertise(port string) (string, error) {
	host := c.Advertise
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host, nil
	}
	if host == "" {
		bound, _, err := net.SplitHostPort(c.ListenAddr)
		if err != nil {
			return "", fmt.Errorf("ListenAddr: %w", err)
		}
		if ip := net.ParseIP(bound); bound == "" || (ip != nil && ip.IsUnspecified()) {
			return "", errors.New("Advertise is needed when listening on all addresses")
		}
		host = bound
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port), nil
}

// Deps are what a Mux works with.
type Deps struct {
	// Network carries the bytes. Nil means TCP{}.
	Network Network
	// Logger may be nil.
	Logger hclog.Logger
	// Registerer receives the metrics until Close. Nil means that they are not exposed.
	Registerer prometheus.Registerer
}

// Network makes the connections under a Mux. Connections must support deadlines,
// and Close must unblock their Read and Write.
type Network interface {
	// Listen binds host:port; port 0 picks a free one.
	Listen(addr string) (net.Listener, error)
	// Dial connects to host:port; it returns no later than the end of ctx.
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// Peer says who is at the other end of a connection, from its handshake. The zero
// Peer is nobody in particular: a tool, or a node that did not say.
type Peer struct {
	// ID is the server id: NodeID, '#', incarnation. Empty for a tool.
	ID raft.ServerID
	// NodeID survives the loss of the node's data; ID does not.
	NodeID string
	// ClusterID was the peer's cluster when it connected, empty if it had none yet.
	ClusterID string
	// Addr is where the peer says that it can be dialed. Empty for a tool.
	Addr string
}

// String returns the peer's id and address for messages.
func (p Peer) String() string {
	if p.ID == "" && p.Addr == "" {
		return "unnamed peer"
	}
	return fmt.Sprintf("%s at %s", p.ID, p.Addr)
}

// serverID joins a node id and an incarnation; a tool has neither.
func serverID(nodeID, incarnation string) raft.ServerID {
	if nodeID == "" {
		return ""
	}
	return raft.ServerID(nodeID + "#" + incarnation)
}
