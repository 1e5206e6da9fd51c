package quorate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/postgres"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/partitions/live"
	"github.com/quorate/quorate/partitions/mirror"
	"github.com/quorate/quorate/partitions/notice"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/protocol/hlc"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/membership"
	"github.com/quorate/quorate/raftnode/mux"
)

// NodeConfig composes the configurations of the parts of a Node. What they must
// know of the node's identity is filled in by OpenNode, from the store.
type NodeConfig struct {
	// NodeID names the node. A store that belongs to another id is refused.
	NodeID string
	// Cache bounds the items that all groups together keep in memory; CacheInterval is
	// how often the water marks are looked at.
	Cache         fsm.BudgetConfig
	CacheInterval time.Duration
	Mux           mux.Config
	Log           logstore.Config
	Flusher       writebehind.Config
	Raft          raftnode.Config
	Membership    membership.Config
	Router        partitions.Config
	Mirror        mirror.Config
	Scrub         ScrubConfig
}

// DefaultNodeConfig returns the configuration of production for a Node without disk,
// secret, addresses and seeds, which are set in Log, Raft.DataDir, Mux and
// Membership.
func DefaultNodeConfig(nodeID string) NodeConfig {
	return NodeConfig{
		NodeID:        nodeID,
		CacheInterval: time.Second,
		Mux:           mux.DefaultConfig(),
		Log:           logstore.MemConfig("wal"),
		Flusher:       writebehind.DefaultConfig(),
		Raft:          raftnode.DefaultConfig(),
		Membership:    membership.DefaultConfig(),
		Router:        partitions.DefaultConfig(),
		Mirror:        mirror.DefaultConfig(),
		Scrub:         DefaultScrubConfig(),
	}
}

// NodeDeps are what a Node works with. Registerer, Network and LogFS may be nil:
// no metrics, TCP, the files of the system.
type NodeDeps struct {
	Logger     hclog.Logger
	Registerer prometheus.Registerer
	Network    mux.Network
	LogFS      logstore.FS
	// Store keeps the node's state. OpenNode takes it over, also when it fails.
	Store storage.Store
	// Table is the table of the cluster in a database, nil without one.
	Table *postgres.Table
	// Physical is the wall clock in milliseconds since 1970.
	Physical func() int64
}

// Node is one member of a cluster without a client listener: replicas, peer links,
// membership and routing. Server adds the listener; simulations run bare Nodes.
// All methods are safe for concurrent use.
type Node struct {
	cfg     NodeConfig
	deps    NodeDeps
	log     hclog.Logger
	wal     *logstore.Log
	mux     *mux.Mux
	clock   *hlc.Clock
	flusher *writebehind.Flusher
	budget  *fsm.Budget
	indexes *fsm.Indexes
	counts  *fsm.Metrics
	hub     *live.Hub
	board   *notice.Board
	host    *raftnode.Host
	agent   *membership.Agent
	router  *partitions.Router
	mirror  *mirror.Mirror // nil without a database
	exports *exporter
	repairs *repairer
	scrubs  *scrubber
	metrics *nodeMetrics
	// indexed is the version of the index definitions in force, once there is a cluster; of
	// relay only.
	indexed struct {
		known   bool
		version uint64
	}
	// logDamage is what a scrub found in the log and could not mend; nil for nothing.
	logDamage atomic.Pointer[string]
	started   time.Time

	// begun: log and store were found to belong together.
	begun bool
	// fatal takes the first reason why the node must stop. Capacity 1.
	fatal chan error
	// left is closed by Run when the node has left its cluster.
	left chan struct{}
	// closing runs the shutdown once; closed is its result.
	closing sync.Once
	closed  error
}

// OpenNode recovers the log, loads the identity and binds the peer port. Nothing
// runs before Run. The errors of the parts come wrapped; a part that failed has
// changed nothing.
func OpenNode(cfg NodeConfig, deps NodeDeps) (*Node, error) {
	n := &Node{cfg: cfg, deps: deps, log: deps.Logger, started: time.Now(), fatal: make(chan error, 1), left: make(chan struct{})}
	if err := n.open(); err != nil {
		return nil, errors.Join(err, n.Close(context.Background()))
	}
	return n, nil
}

func (n *Node) open() (err error) {
	identity, err := membership.LoadIdentity(n.deps.Store, n.cfg.NodeID)
	if err != nil {
		return fmt.Errorf("load identity: %w", err)
	}
	n.wal, err = logstore.Open(n.cfg.Log, logstore.Deps{
		Logger: n.log.Named("logstore"), FS: n.deps.LogFS, Registerer: n.deps.Registerer,
	})
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	if err := beginEpoch(n.deps.Store, n.wal); err != nil {
		return err
	}
	n.begun = true
	n.flusher, err = writebehind.New(n.cfg.Flusher, writebehind.Deps{
		Logger: n.log, Store: n.deps.Store, Registerer: n.deps.Registerer,
	})
	if err != nil {
		return err
	}
	if n.budget, err = fsm.OpenBudget(n.cfg.Cache, n.deps.Registerer); err != nil {
		return err
	}
	if n.indexes, err = fsm.OpenIndexes(n.deps.Registerer); err != nil {
		return err
	}
	if n.deps.Registerer != nil {
		if n.counts, err = fsm.OpenMetrics(n.deps.Registerer); err != nil {
			return err
		}
	}
	n.cfg.Mux.NodeID, n.cfg.Mux.Incarnation = identity.NodeID, identity.Incarnation
	n.mux, err = mux.Open(n.cfg.Mux, mux.Deps{
		Network: n.deps.Network, Logger: n.log.Named("mux"), Registerer: n.deps.Registerer,
	})
	if err != nil {
		return err
	}
	n.clock = hlc.New(n.cfg.NodeID, n.deps.Physical)
	n.hub, n.board = live.NewHub(), new(notice.Board)
	if err := n.openHost(identity.ID()); err != nil {
		return err
	}
	n.cfg.Membership.NodeID, n.cfg.Membership.Incarnation = identity.NodeID, identity.Incarnation
	n.agent, err = membership.New(n.cfg.Membership, membership.Deps{
		Logger: n.log, Host: n.host, Mux: n.mux, Identity: n.deps.Store, Place: placement.Plan,
		Stored: n.wal.Groups, Physical: n.deps.Physical, Registerer: n.deps.Registerer,
	})
	if err != nil {
		return fmt.Errorf("open membership: %w", err)
	}
	if err := n.openMirror(); err != nil {
		return err
	}
	n.openRouter(identity.ID())
	n.handleTransfers()
	n.exports, n.scrubs = newExporter(n), newScrubber(n)
	return n.metrics.register(n.deps.Registerer)
}

func (n *Node) openHost(id raftnode.ServerID) error {
	n.cfg.Raft.ID = id
	n.repairs, n.metrics = newRepairer(n), newNodeMetrics(n)
	if err := n.cfg.Raft.Validate(); err != nil {
		return fmt.Errorf("raft configuration: %w", err)
	}
	n.host = raftnode.NewHost(n.cfg.Raft, raftnode.Deps{
		Logger: n.log, Mux: n.mux, Log: n.wal, Clock: n.clock,
		NewMachine:  n.newMachine,
		DropMachine: n.dropMachine,
		Fatal:       n.fail,
		Damaged:     n.repairs.report,
		Registerer:  n.deps.Registerer,
	})
	return nil
}

// newMachine opens the state of one group.
func (n *Node) newMachine(group uint32) (raftnode.StateMachine, error) {
	cfg := fsm.Config{Group: group, Budget: n.budget, Metrics: n.counts, Verify: true}
	if group != raftnode.SystemGroup {
		cfg.Indexes = n.indexes
	}
	deps := fsm.Deps{
		Logger: n.log, Store: n.deps.Store, Flusher: n.flusher, OnChange: n.changed,
		OnDamage: func(err error) { n.repairs.report(group, err) },
	}
	if group != raftnode.SystemGroup && n.deps.Table == nil { // to those the node itself listens
		deps.Listening = n.hub.Listening
	}
	return fsm.Open(cfg, deps)
}

// dropMachine removes the state of a group that this node holds no longer. Who follows
// a map here would hear nothing more of the group's keys, so all are told to resync.
func (n *Node) dropMachine(group uint32) error {
	err := n.deps.Store.Drop(group)
	gone := &fsm.Changes{Group: group, Reset: true}
	n.hub.Publish(gone)
	n.board.Publish(gone)
	return err
}

// changed hears of every change that a local replica applied. Those of a replica that is
// still catching up are of long ago, and clients have heard of them from its holders.
func (n *Node) changed(c *fsm.Changes) {
	if g, running := n.host.Group(c.Group); running && g.Votes() {
		n.hub.Publish(c)
	}
	n.board.Publish(c)
	if n.mirror != nil {
		n.mirror.Changed(c)
	}
	if c.Group == raftnode.SystemGroup {
		n.agent.StateChanged()
	}
}

// openMirror prepares writing to the database, if there is one.
func (n *Node) openMirror() (err error) {
	if n.deps.Table == nil {
		return nil
	}
	n.mirror, err = mirror.New(n.cfg.Mirror, mirror.Deps{
		Logger: n.log, Table: mirror.Postgres{Table: n.deps.Table}, Groups: partitions.HostGroups{Host: n.host},
		Cluster: n.agent.State, Registerer: n.deps.Registerer,
	})
	return err
}

// admit slows proposers down while the store or the database has enough to write.
func (n *Node) admit(ctx context.Context) error {
	if n.mirror != nil {
		if err := n.mirror.WaitBelowCapacity(ctx); err != nil {
			return err
		}
	}
	return n.flusher.WaitBelowCapacity(ctx)
}

func (n *Node) openRouter(id raftnode.ServerID) {
	n.cfg.Router.Self = id
	n.cfg.Router.Durable = n.deps.Store.Durable()
	deps := partitions.Deps{
		Logger:   n.log,
		Groups:   partitions.HostGroups{Host: n.host},
		Peers:    n.mux,
		Clock:    n.clock,
		Physical: n.deps.Physical,
		Cluster:  n.agent.State,
		Admit:    n.admit,
		Hub:      n.hub,
		Board:    n.board,
	}
	if n.mirror != nil {
		deps.Mirror = n.mirror
	}
	n.router = partitions.New(n.cfg.Router, deps)
}

// fail notes why the node must stop; Run returns it.
func (n *Node) fail(err error) {
	select {
	case n.fatal <- err:
	default:
	}
}

// Router is the way to the data.
func (n *Node) Router() *partitions.Router { return n.router }

// Host runs the node's replicas.
func (n *Node) Host() *raftnode.Host { return n.host }

// Agent keeps the node in its cluster.
func (n *Node) Agent() *membership.Agent { return n.agent }

// Mux is the node's end of the peer network. Handlers are registered before Run.
func (n *Node) Mux() *mux.Mux { return n.mux }
