package mirror

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/postgres"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
)

// Config tunes a Mirror. Use DefaultConfig and change fields.
type Config struct {
	// Interval is the longest time a change waits for its transaction to begin while the
	// database answers.
	Interval time.Duration
	// BatchSize and BatchBytes bound the rows of a transaction and their values.
	BatchSize, BatchBytes int
	// Capacity is the number of changed keys on this node at which proposers are slowed.
	Capacity int
	// Timeout bounds one transaction. It is generous: a slow database is no failure.
	Timeout time.Duration
	// Poll is how often leadership is looked at; RetryFirst and RetryLast bound the pause
	// after a failure, and RetryRejected is that before a refused row is tried again.
	Poll, RetryFirst, RetryLast, RetryRejected time.Duration
}

// DefaultConfig is the configuration of production.
func DefaultConfig() Config {
	return Config{
		Interval: time.Second, BatchSize: 100, BatchBytes: 8 << 20, Capacity: 10_000, Timeout: time.Minute,
		Poll: 50 * time.Millisecond, RetryFirst: 50 * time.Millisecond, RetryLast: 5 * time.Second, RetryRejected: time.Minute,
	}
}

// Replica is the state of a group on this node.
type Replica interface {
	Published() uint64
	Adopted() bool
	Fence() uint64
	Horizon() fsm.Horizon
	Item(mapName, key string) (fsm.Item, uint64, error)
	ChangedKeys(since uint64, at fsm.Place, limit int) ([]fsm.Name, fsm.Place, error)
}

// Groups is the local replica host.
type Groups interface {
	// Term is the term in which the local replica of group leads, if it does.
	Term(group uint32) (term uint64, leads bool)
	// Propose queues commands at the local leader of group.
	Propose(group uint32, cmds []raftnode.Command) (raftnode.Proposal, error)
	// Source is the local replica of group, false if there is none.
	Source(group uint32) (Replica, bool)
}

// Deps are the collaborators of a Mirror. Registerer may be nil.
type Deps struct {
	Logger hclog.Logger
	Table  Table
	Groups Groups
	// Cluster is the replicated cluster state, nil before the node belongs to one.
	Cluster    func() *system.State
	Registerer prometheus.Registerer
}

// Mirror is the part of one node in writing the table. All methods are safe for
// concurrent use.
type Mirror struct {
	cfg     Config
	deps    Deps
	log     hclog.Logger
	metrics *metrics

	// session is the node's use of the table; of Run's goroutine only.
	session Session
	// sessions counts them: behind a new one may be another database.
	sessions atomic.Uint64

	// mu protects the fields below.
	mu     sync.Mutex
	groups map[uint32]*group
	// room is closed, and replaced, when less may be waiting.
	room chan struct{}
}

// New returns a Mirror that works once Run is called.
func New(cfg Config, deps Deps) (*Mirror, error) {
	m := &Mirror{cfg: cfg, deps: deps, log: deps.Logger.Named("mirror"), groups: map[uint32]*group{}, room: make(chan struct{})}
	var err error
	if m.metrics, err = newMetrics(deps.Registerer, m); err != nil {
		return nil, fmt.Errorf("mirror: %w", err)
	}
	return m, nil
}

// errNotYet says that the cluster has no claim of the table yet.
var errNotYet = errors.New("the cluster has not claimed the table yet")

// Run writes until ctx ends.
func (m *Mirror) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	started := map[uint32]bool{}
	pause := m.cfg.RetryFirst
	for {
		if state := m.deps.Cluster(); state != nil && state.Genesis != nil {
			for id := uint32(1); id <= state.Genesis.Groups; id++ {
				if !started[id] {
					started[id] = true
					g := m.group(id)
					wg.Go(func() { g.run(ctx) })
				}
			}
		}
		err := m.keep(ctx)
		if err != nil && !errors.Is(err, errNotYet) && ctx.Err() == nil {
			m.failed(0, "the table cannot be used", err)
			pause = min(2*pause, m.cfg.RetryLast)
		} else {
			pause = max(m.cfg.Poll, m.cfg.RetryFirst)
			if err == nil {
				m.metrics.success(0)
				pause = m.cfg.Interval
			}
		}
		if !sleep(ctx, pause, nil) {
			break
		}
	}
	if m.session != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.cfg.RetryLast)
		defer cancel()
		_ = m.session.Close(closing) // the end of the process ends it too
	}
}

// keep has the node hold a session on the table, which the leader of the system group
// claims for the cluster.
func (m *Mirror) keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	state := m.deps.Cluster()
	if state == nil || state.Genesis == nil {
		return errNotYet
	}
	if m.session != nil {
		if err := m.session.Check(ctx); err == nil {
			return nil
		}
		_ = m.session.Close(ctx) // it is broken already
		m.session = nil
	}
	if state.Database == nil {
		return m.claim(ctx, state)
	}
	session, err := m.deps.Table.Join(ctx)
	if err != nil {
		return err
	}
	owner, err := m.deps.Table.Owner(ctx)
	if err == nil && owner != (postgres.Owner{Cluster: state.Genesis.ClusterID, Database: *state.Database}) {
		err = fmt.Errorf("%w: it is that of cluster %s, claim %s", postgres.ErrForeign, owner.Cluster, owner.Instance)
	}
	if err != nil {
		_ = session.Close(ctx) // the reason is told
		return m.explain(state, err)
	}
	m.session = session
	m.sessions.Add(1)
	return nil
}

// explain adds to an error about a database that is not the one of before what an
// operator can do about it.
func (m *Mirror) explain(state *system.State, err error) error {
	if !errors.Is(err, postgres.ErrForeign) {
		return err
	}
	owner := postgres.Owner{Cluster: state.Genesis.ClusterID, Database: *state.Database}
	return fmt.Errorf("%w; to have the cluster write all of its records to this database instead, create the tables and run: %s",
		err, m.deps.Table.Adopt(owner))
}

// claim makes the table the cluster's if this node leads the system group.
func (m *Mirror) claim(ctx context.Context, state *system.State) error {
	if _, leads := m.deps.Groups.Term(raftnode.SystemGroup); !leads {
		return errNotYet
	}
	owner, session, err := m.deps.Table.Claim(ctx, state.Genesis.ClusterID, rand.Text())
	if err != nil {
		return err
	}
	proposal, err := m.deps.Groups.Propose(raftnode.SystemGroup, []raftnode.Command{command.EncodeDatabasePut(owner.Database)})
	if err == nil {
		_, err = proposal.Wait(ctx)
	}
	if err != nil {
		_ = session.Close(ctx) // the claim stays, and is found by whoever claims next
		return fmt.Errorf("propose the claim: %w", err)
	}
	m.log.Info("claimed the table", "table", m.deps.Table.Name(), "instance", owner.Instance, "epoch", owner.Epoch)
	m.session = session
	m.sessions.Add(1)
	return nil
}

// owner is by which claim the cluster writes.
func (m *Mirror) owner() (postgres.Owner, error) {
	state := m.deps.Cluster()
	if state == nil || state.Genesis == nil || state.Database == nil {
		return postgres.Owner{}, errNotYet
	}
	return postgres.Owner{Cluster: state.Genesis.ClusterID, Database: *state.Database}, nil
}

func (m *Mirror) group(id uint32) *group {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.groups[id]
	if g == nil {
		g = newGroup(m, id)
		m.groups[id] = g
	}
	return g
}

func (m *Mirror) all() []*group {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]*group, 0, len(m.groups))
	for _, g := range m.groups {
		list = append(list, g)
	}
	return list
}

// Changed notes what a local replica applied. It does not block.
func (m *Mirror) Changed(c *fsm.Changes) {
	if c.Group == raftnode.SystemGroup {
		return
	}
	m.mu.Lock()
	g := m.groups[c.Group]
	m.mu.Unlock()
	if g != nil {
		g.changed(c)
	}
}

// mirrored reports whether a section is in the table.
func mirrored(s storage.Section) bool { return s == storage.SectionRecords || s == storage.SectionSets }

// Pending is the number of changed keys of groups that this node leads which wait for the
// database.
func (m *Mirror) Pending() int {
	n := 0
	for _, g := range m.all() {
		pending, _ := g.counts()
		n += pending
	}
	return n
}

// full reports whether proposers must wait: for the database, until what it held before
// the cluster is in the state, or, after an election, until changes are counted.
func (m *Mirror) full() bool {
	if !m.Ready() {
		return true
	}
	waiting, rejected := 0, 0
	for id := uint32(1); id <= m.deps.Cluster().Genesis.Groups; id++ {
		g := m.group(id)
		if _, leads := m.deps.Groups.Term(id); leads && !g.counting() {
			return true
		}
		pending, refused := g.counts()
		waiting, rejected = waiting+pending, rejected+refused
	}
	return waiting >= m.cfg.Capacity || rejected >= m.cfg.Capacity
}

// WaitBelowCapacity blocks while as much waits for the database as may. It returns the
// context's error.
func (m *Mirror) WaitBelowCapacity(ctx context.Context) error {
	for m.full() {
		m.mu.Lock()
		room := m.room
		m.mu.Unlock()
		timer := time.NewTimer(m.cfg.Poll) // replicas become ready without a word
		select {
		case <-room:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
	return nil
}

func (m *Mirror) signalRoom() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.room)
	m.room = make(chan struct{})
}

// Ready reports whether what the table held before the cluster is in every local replica.
func (m *Mirror) Ready() bool {
	state := m.deps.Cluster()
	if state == nil || state.Genesis == nil || state.Database == nil {
		return false
	}
	for id := uint32(1); id <= state.Genesis.Groups; id++ {
		if replica, held := m.deps.Groups.Source(id); held && !replica.Adopted() {
			return false
		}
	}
	return true
}

// Drain waits until nothing waits for the database, the database does not answer, or ctx
// ends. What is left is found by the next leaders.
func (m *Mirror) Drain(ctx context.Context) {
	for m.Pending() > 0 && m.metrics.available() && ctx.Err() == nil {
		for _, g := range m.all() {
			g.hurry()
		}
		sleep(ctx, m.cfg.Poll, nil)
	}
	if n := m.Pending(); n > 0 {
		m.log.Warn("the table is not up to date; the next leaders write the rest", "keys", n)
	}
}

// failed counts a failure, and logs the first of a row.
func (m *Mirror) failed(group uint32, what string, err error) {
	class := postgres.Class(err)
	if m.metrics.failure(group, class) && !postgres.Retry(err) {
		m.log.Error(what, "group", group, "class", class, "err", err)
		return
	}
	m.log.Debug(what, "group", group, "class", class, "err", err)
}

// sleep waits for d, or until wake has a token, and reports whether ctx still lasts.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
	}
	return ctx.Err() == nil
}
