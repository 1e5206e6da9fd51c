package membership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/membership/genesis"
	"github.com/quorate/quorate/raftnode/mux"
)

// The loops of an Agent.
const (
	loopFollow    = iota // enters the cluster, then follows its documents
	loopGovern           // changes the documents, on the system leader
	loopReconcile        // changes groups, on their leaders
	loopPulse            // exchanges pings
	loops
)

// Phase is how far a node has come on its way into a cluster.
type Phase uint8

// The phases.
const (
	PhaseFresh      Phase = iota // belongs to no cluster and looks for one
	PhaseForming                 // was chosen to found a cluster and does
	PhaseJoining                 // was admitted and waits for the cluster's documents
	PhaseCatchingUp              // has the documents and catches up with the log
	PhaseMember                  // in place
	PhaseLeaving                 // hands its replicas over for good
)

var phaseNames = [...]string{"fresh", "forming", "joining", "catching-up", "member", "leaving"}

// String is the phase's name for logs and operators.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// Deps are what an Agent works with. All are required unless said otherwise.
type Deps struct {
	Logger hclog.Logger
	Host   *raftnode.Host
	// Mux carries the exchanges with other nodes. It must not be started before New.
	Mux *mux.Mux
	// Identity keeps who the node is and what it has promised.
	Identity IdentityStore
	Place    Place
	// Stored lists the groups that have a log on this node: they are started again
	// also where the table does not place them here any more, since their quorum may
	// still need this replica. Nil means none.
	Stored func() []uint32
	// Physical is the wall clock in milliseconds since 1970, for dates in documents.
	Physical func() int64
	// Registerer takes the metrics. Nil means none.
	Registerer prometheus.Registerer
}

// Agent keeps one node in its cluster. All methods are safe for concurrent use.
type Agent struct {
	cfg     Config
	deps    Deps
	log     hclog.Logger
	metrics *metrics
	id      raftnode.ServerID
	// boot tells this process from another one with the same store.
	boot    string
	started time.Time

	former *former
	peers  *peerBook
	led    *ledGroups
	caught *catchUp
	// wakes holds one channel of capacity 1 per loop that reacts to changes.
	wakes [loops]chan struct{}
	// admitting has a token while a node is being admitted. It is a channel because
	// that can take long, and the wait must end with its context.
	admitting chan struct{}
	// fatal takes the first reason why the node must stop; capacity 1.
	fatal chan error

	// mu protects the fields below.
	mu    sync.Mutex
	phase Phase
	rec   identityRecord
	// state is the last seen documents, nil before there are any.
	state *system.State
	// addrs are the members' addresses as stored last.
	addrs   peerAddrs
	welcome welcome
	// draining: this node is about to stop; leaving: for good.
	draining, leaving bool
	subs              map[chan struct{}]struct{}
}

// New returns an Agent and registers its handlers with deps.Mux, which must not be
// started yet. It fails when the configuration is not valid, when the identity is
// not the stored one, or when the store cannot be read.
func New(cfg Config, deps Deps) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("membership configuration: %w", err)
	}
	rec, err := loadIdentityRecord(deps.Identity)
	if err != nil {
		return nil, err
	}
	if rec.NodeID != cfg.NodeID || rec.Incarnation != cfg.Incarnation {
		return nil, &StoreOwnerError{Owner: rec.NodeID + "#" + rec.Incarnation, NodeID: cfg.NodeID + "#" + cfg.Incarnation}
	}
	id := Identity{NodeID: rec.NodeID, Incarnation: rec.Incarnation}.ID()
	self := genesis.Node{ID: string(id), NodeID: rec.NodeID, Addr: deps.Mux.Addr(), Durable: deps.Identity.Durable()}
	former, err := newFormer(self, cfg.Seeds, cfg.Timing, deps.Identity)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	a := &Agent{
		cfg: cfg, deps: deps, log: deps.Logger.Named("membership"), id: id, boot: randomHex(8), started: now,
		former: former, peers: newPeerBook(cfg.Timing, now), led: newLedGroups(), caught: newCatchUp(),
		admitting: make(chan struct{}, 1), fatal: make(chan error, 1), rec: rec, subs: map[chan struct{}]struct{}{},
	}
	for i := range a.wakes {
		a.wakes[i] = make(chan struct{}, 1)
	}
	if a.metrics, err = newMetrics(deps.Registerer); err != nil {
		return nil, err
	}
	if rec.ClusterID != "" {
		a.former.close()
		deps.Mux.SetClusterID(rec.ClusterID)
	}
	a.handle()
	return a, nil
}

func (a *Agent) handle() {
	a.deps.Mux.Handle(methodHello, a.handleHello)
	a.deps.Mux.Handle(methodPrepare, a.handleVote(methodPrepare))
	a.deps.Mux.Handle(methodAccept, a.handleVote(methodAccept))
	a.deps.Mux.Handle(methodChosen, a.handleChosen)
	a.deps.Mux.Handle(methodJoin, a.handleJoin)
	a.deps.Mux.Handle(methodPing, a.handlePing)
	a.deps.Mux.Handle(methodLeave, a.handleLeave)
	a.deps.Mux.Handle(methodExpel, a.handleExpel)
}

// Run forms, joins or resumes, and then keeps the node in its cluster until ctx
// ends or the node was removed at its own wish; both return nil. It blocks and is
// called once. Errors mean that the process should stop: *DuplicateError,
// *RefusedError, and failures of the store or of starting a group.
func (a *Agent) Run(ctx context.Context) error {
	defer a.metrics.unregister()
	err := a.enter(ctx)
	if err == nil {
		err = a.keep(ctx)
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// enter brings the node into a cluster.
func (a *Agent) enter(ctx context.Context) error {
	rec := a.record()
	switch {
	case rec.ClusterID != "":
		return a.resume(ctx)
	case rec.Founding != "" || len(a.cfg.Seeds) == 0:
		return a.found(ctx)
	default:
		return a.formOrJoin(ctx)
	}
}

// State returns the replicated documents of the cluster, nil until the node has
// some. The result is shared and must not be modified.
func (a *Agent) State() *system.State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Phase returns how far the node has come.
func (a *Agent) Phase() Phase {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.phase
}

// CaughtUp reports whether the node belongs to a cluster and every replica that it
// held when it met the cluster has applied what was committed then. Once true it
// stays true.
func (a *Agent) CaughtUp() bool { return a.caught.reached() }

// Subscribe returns a channel that receives a token after every change of State,
// Phase and CaughtUp, and whose tokens coalesce. It is never closed. cancel ends
// the subscription.
func (a *Agent) Subscribe() (changed <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.subs[c] = struct{}{}
	return c, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.subs, c)
	}
}

// StateChanged tells the Agent that the documents of the system group or a
// leadership may have changed, so that it looks at once. It does not block.
func (a *Agent) StateChanged() { a.wake() }

// BeginDrain tells the other members that this node is about to stop: they give it
// no leaderships any more.
func (a *Agent) BeginDrain() {
	a.mu.Lock()
	a.draining = true
	a.mu.Unlock()
	a.wake()
}

func (a *Agent) wake() {
	for _, c := range a.wakes {
		token(c)
	}
}

// token puts a token into c unless there is one.
func token(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (a *Agent) notifyLocked() {
	for c := range a.subs {
		token(c)
	}
}

func (a *Agent) setPhase(p Phase) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase == p {
		return
	}
	a.log.Info("phase changed", "from", a.phase, "to", p)
	a.phase = p
	a.notifyLocked()
}

func (a *Agent) record() identityRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rec
}

// setRecord makes a new identity record durable.
func (a *Agent) setRecord(rec identityRecord) error {
	if err := saveDocument(a.deps.Identity, identityDocument, rec); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rec = rec
	return nil
}

// sleep waits for d, or less if ctx ends or wake has a token.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
