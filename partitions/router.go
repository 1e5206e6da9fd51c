package partitions

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/partitions/live"
	"github.com/quorate/quorate/partitions/locks"
	"github.com/quorate/quorate/partitions/notice"
	"github.com/quorate/quorate/partitions/remote"
	"github.com/quorate/quorate/partitions/topics"
	"github.com/quorate/quorate/partitions/workers"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

// Config tunes a Router. Use DefaultConfig and change fields.
type Config struct {
	// Self is this node's server id. Required.
	Self raftnode.ServerID
	// Durable says that a commit means fsynced on a quorum: acknowledgements then
	// report PERSISTED, unless there is a Mirror. Without it they report REPLICATED.
	Durable bool
	// Patience is how long a write waits for its groups to accept it while nothing
	// of it was proposed. After that the client is told that nothing was applied.
	Patience time.Duration
	// ConfirmTimeout is how long a linearizable read waits for its mark to be committed.
	ConfirmTimeout time.Duration
	// AttemptTimeout bounds one forwarded request; its outcome is unknown then, and
	// the commands are offered again.
	AttemptTimeout time.Duration
	// AdoptTimeout bounds how long commands acknowledged at MEMORY are retried.
	AdoptTimeout time.Duration
	// LaneRequests is how many requests of one group may be under way from this
	// node; further commands gather and travel together.
	LaneRequests int
	// CollectInterval is the pace of collecting tombstones, CollectAge how old they
	// get. A client that was away for longer than that starts from nothing.
	CollectInterval, CollectAge time.Duration
	// RequestOps and RequestBytes bound what travels together in one request. A
	// larger write of one client travels alone.
	RequestOps, RequestBytes int
	// Remote tunes reads of groups that other nodes hold.
	Remote remote.Config
}

// DefaultConfig is the configuration for production, without Self.
func DefaultConfig() Config {
	return Config{
		Durable:        true,
		Patience:       5 * time.Second,
		ConfirmTimeout: 2 * time.Second,
		AttemptTimeout: 3 * time.Second,
		AdoptTimeout:   30 * time.Second,
		LaneRequests:   4,
		RequestOps:     256,
		RequestBytes:   1 << 20,

		CollectInterval: time.Minute,
		CollectAge:      7 * 24 * time.Hour,

		Remote: remote.DefaultConfig(),
	}
}

// Groups is the local replica host as the router uses it.
type Groups interface {
	// Propose queues commands at the local leader of group. Its errors promise
	// that nothing was appended.
	Propose(group uint32, cmds []raftnode.Command) (raftnode.Proposal, error)
	// Leader is the best known leader of group as its local replica sees it, empty
	// if unknown or if there is no local replica, and the leader's term.
	Leader(group uint32) (id raftnode.ServerID, term uint64)
	// Term is the term in which the local replica of group leads, if it does.
	Term(group uint32) (term uint64, leads bool)
	// WaitApplied blocks until the local replica of group has applied index.
	WaitApplied(ctx context.Context, group uint32, index uint64) error
	// Replica reads the local replica of group; false if there is none that votes: one
	// that is still catching up would show a state of long ago.
	Replica(group uint32) (Replica, bool)
}

// Replica reads the local replica of one group, in its applied state.
type Replica interface {
	// Scan calls fn for the records of a map in key order, tombstones included, those
	// below from left out, from one consistent state, and returns that state's log index.
	Scan(mapName, from string, fn func(key string, rec protocol.Record) bool) (uint64, error)
	// Seek calls begin and then fn with the records that a query may admit, if an index
	// finds them; see fsm.Machine.Seek. IndexStat says how far an index is built.
	Seek(s fsm.Seek, begin func(fsm.Found), fn func(key string, rec protocol.Record) bool) (fsm.Found, uint64, error)
	IndexStat(mapName, attribute string) (fsm.IndexStat, bool)
	// Get returns a record, tombstones included, and whether there is one. MapNames lists the maps that have or
	// had keys.
	Get(mapName, key string) (protocol.Record, bool, error)
	MapNames() []string
	// AddLeaves adds the group's share of a hash tree to leaves.
	AddLeaves(mapName string, kind merkle.Kind, leaves *merkle.Leaves) (uint64, error)
	// LeafRecords calls fn with the records of a leaf that entries above since stored,
	// until it returns false; fn neither keeps them nor blocks.
	LeafRecords(leaf fsm.Leaf, since uint64, fn func(key string, rec protocol.Record) bool) error
	// LeafSets calls fn with the keys of a leaf of an observed-remove map, in parts, until
	// it returns false; Set returns a part of one key, and whether more follows.
	LeafSets(leaf fsm.Leaf, fn func(part protocol.OREntry) bool) error
	Set(mapName, key, tag string) (part protocol.OREntry, more bool, err error)
	// ChangedBuckets returns the buckets that entries above since may have changed.
	ChangedBuckets(mapName string, since uint64) ([]uint16, uint64, error)
	// Horizon says how far tombstones are collected, Graves lists the oldest ones that
	// came up to a time.
	Horizon() fsm.Horizon
	Graves(throughMillis int64, limit int) ([]string, error)
	// Tag returns what the group knows of a tag.
	Tag(mapName, tag string) (fsm.TagState, error)
	// Counter returns the cells of a counter, and the index of the state.
	Counter(name string) ([]command.Cell, uint64, error)
	// GreatestToken is the greatest token that a lock of the group was given.
	GreatestToken() uint64
	locks.Replica
}

// Peers reaches other nodes.
type Peers interface {
	Call(ctx context.Context, to raftnode.ServerID, method mux.Method, body []byte) ([]byte, error)
	Handle(method mux.Method, h mux.Handler)
	// ClusterID is the id of the cluster in its present life, empty before the node belongs
	// to one.
	ClusterID() string
}

// Clock is the node's hybrid logical clock.
type Clock interface {
	Now() protocol.Timestamp
	Update(ts protocol.Timestamp)
	Last() protocol.Timestamp
}

// Deps are the collaborators of a Router. All but Mirror are required.
type Deps struct {
	Logger hclog.Logger
	Groups Groups
	Peers  Peers
	Clock  Clock
	// Physical is the wall clock in milliseconds that judges stamps from the
	// future and hides expired records.
	Physical func() int64
	// Cluster is the replicated cluster state, nil before the node belongs to one.
	Cluster func() *system.State
	// Admit slows proposers down: it blocks while the write-behind buffer is full.
	Admit func(ctx context.Context) error
	// Hub fans committed changes of maps out, Board those of locks and counters.
	Hub   *live.Hub
	Board *notice.Board
	// Mirror is the way to the database of the cluster, nil without one. What asks for
	// PERSISTED then waits for the database.
	Mirror Mirror
}

// idleWorkers is how many goroutines wait for the next request of a lane.
const idleWorkers = 32

// Router accepts writes and subscriptions for all partitions on this node. It is
// safe for concurrent use. Close ends its background work.
type Router struct {
	cfg    Config
	deps   Deps
	log    hclog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	// workers run what spawn starts.
	workers *workers.Pool
	// boot names this run of the node: sessions and dedup ids are counted anew with each
	// run, while the groups remember those of earlier ones.
	boot string

	// collectInterval is the present pace of collecting tombstones, in nanoseconds;
	// collectPaced has a token after it changed.
	collectInterval atomic.Int64
	collectPaced    chan struct{}

	sessions atomic.Uint64
	dedup    atomic.Uint64

	// mapWatchers are told of changes of the partition map, horizonWatchers of what was
	// collected.
	mapWatchers, horizonWatchers watchers

	locks  *locks.Service
	topics *topics.Service
	// remote reads the groups that other nodes hold, server answers those nodes.
	remote *remote.Client
	server *remote.Server

	// mu protects the fields below. horizons are those of groups that other nodes hold.
	mu       sync.Mutex
	closed   bool
	lanes    map[uint32]*lane
	horizons map[uint32]knownHorizon
	// tokens are the greatest tokens that groups told of.
	tokens map[uint32]uint64
	queues map[uint32]*persistQueue

	// rendered caches the client's view of the last cluster state.
	rendered atomic.Pointer[renderedMap]
}

type renderedMap struct {
	state *system.State
	info  *MapInfo
}

// New returns a Router and registers its handlers with deps.Peers.
func New(cfg Config, deps Deps) *Router {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Router{
		cfg: cfg, deps: deps, log: deps.Logger.Named("partitions"), ctx: ctx, cancel: cancel,
		workers: workers.New(idleWorkers), lanes: map[uint32]*lane{}, horizons: map[uint32]knownHorizon{}, tokens: map[uint32]uint64{},
		queues:       map[uint32]*persistQueue{},
		collectPaced: make(chan struct{}, 1),
		boot:         fmt.Sprintf("%s/%s", cfg.Self, rand.Text()[:12]),
	}
	r.collectInterval.Store(int64(cfg.CollectInterval))
	r.locks, r.topics = r.newLocks(), r.newTopics()
	r.remote, r.server = r.newRemote()
	deps.Peers.Handle(methodForward, r.handleForward)
	if deps.Mirror != nil {
		deps.Peers.Handle(methodProgress, r.handleProgress)
	}
	return r
}

// Close stops retrying, waits for the background work and leaves writes under way
// to their callers' deadlines. Calling it again does nothing.
func (r *Router) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.locks.Close()
	r.topics.Close()
	r.remote.Close()
	r.server.Close()
	r.workers.Close()
}

// spawn runs fn as background work that Close waits for, and reports whether it
// could: a closed Router starts nothing.
func (r *Router) spawn(fn func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.workers.Go(fn)
	return true
}

// NewSession returns the state of one new connection.
func (r *Router) NewSession() *Session {
	return &Session{origin: fmt.Sprintf("%s/%d", r.boot, r.sessions.Add(1)), locks: r.locks.NewSession()}
}

// groups is the number of data groups, zero before the node belongs to a cluster.
func (r *Router) groups() uint32 {
	state := r.deps.Cluster()
	if state == nil || state.Genesis == nil {
		return 0
	}
	return state.Genesis.Groups
}

// Write proposes ops and waits for a verdict on each, in order. It blocks until
// the level that ops ask for is reached, or ctx ends. Errors: ErrUnavailable when
// nothing was proposed, ErrUnknown when an operation has no verdict.
func (r *Router) Write(ctx context.Context, s *Session, ops []Op) ([]Verdict, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	groups := r.groups()
	if groups == 0 {
		return nil, errNoCluster
	}
	w := newWrite(ctx, s, ops)
	w.mirrored = r.deps.Mirror != nil
	if err := r.judgeFences(ctx, w); err != nil {
		return nil, err
	}
	for _, p := range r.split(w, groups) {
		r.lane(p.group).submit(p)
	}
	if err := w.wait(ctx, r.cfg.Patience); err != nil {
		return nil, err
	}
	known, err := r.persist(ctx, w)
	if err != nil {
		return nil, err
	}
	return r.verdicts(w, known), nil
}

func (r *Router) verdicts(w *write, known settled) []Verdict {
	out := make([]Verdict, len(w.ops))
	for i := range w.ops {
		if res := &w.results[i]; res.Code != 0 {
			out[i] = Verdict{Code: res.Code, Reason: res.Reason}
		} else {
			out[i] = Verdict{Level: r.reached(w, &w.ops[i], known)}
		}
	}
	return out
}

func (r *Router) lane(group uint32) *lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lanes[group]
	if l == nil {
		l = &lane{router: r, group: group}
		r.lanes[group] = l
	}
	return l
}

// leader is the best known leader of group: the local replica's view, or the
// replicated table's where there is no replica.
func (r *Router) leader(group uint32) raftnode.ServerID {
	id, _ := r.leaderIn(group)
	return id
}

// leaderIn is leader with its term.
func (r *Router) leaderIn(group uint32) (id raftnode.ServerID, term uint64) {
	if id, term := r.deps.Groups.Leader(group); id != "" {
		return id, term
	}
	if _, held := r.deps.Groups.Replica(group); held {
		return "", 0
	}
	state := r.deps.Cluster()
	if state == nil || group == 0 || int(group) > len(state.Table.Groups) {
		return "", 0
	}
	p := &state.Table.Groups[group-1]
	return raftnode.ServerID(p.Leader), p.LeaderTerm
}

// leads reports whether this node is the leader of a group, as far as it knows.
func (r *Router) leads(group uint32) bool {
	id, _ := r.deps.Groups.Leader(group)
	return id == r.cfg.Self
}

// PartitionMap is the cluster as clients see it, nil before the node belongs to
// one. The result is shared and must not be modified.
func (r *Router) PartitionMap() *MapInfo {
	state := r.deps.Cluster()
	if state == nil || state.Genesis == nil {
		return nil
	}
	if m := r.rendered.Load(); m != nil && m.state == state {
		return m.info
	}
	m := &renderedMap{state: state, info: mapInfo(state)}
	r.rendered.Store(m)
	return m.info
}

// MapChanged registers fn to be called after every change of PartitionMap, until
// cancel is called. fn must not block.
func (r *Router) MapChanged(fn func()) (cancel func()) { return r.mapWatchers.add(fn) }

// ClusterChanged tells the Router that Deps.Cluster may answer differently now.
func (r *Router) ClusterChanged() { r.mapWatchers.call() }

// notAppended reports whether err promises that nothing was appended anywhere.
func notAppended(err error) bool {
	var remote *mux.RemoteError
	if errors.As(err, &remote) {
		// The other codes leave open how far the handler came.
		return remote.Code == codeUnreadable || remote.Code == mux.CodeNoMethod || remote.Code == mux.CodeBusy
	}
	var notLeader *raftnode.NotLeaderError
	var refused *mux.RefusedError
	return errors.As(err, &notLeader) || errors.As(err, &refused) || errors.Is(err, mux.ErrUnreachable) || errors.Is(err, mux.ErrTooLarge) ||
		errors.Is(err, raftnode.ErrNotHere) || errors.Is(err, raftnode.ErrBusy) || errors.Is(err, raftnode.ErrTooLarge)
}
