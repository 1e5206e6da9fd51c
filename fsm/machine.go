package fsm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/fsm/system"
)

// SystemGroup is the group that keeps the cluster documents.
const SystemGroup = 0

// Config parameterises a Machine.
type Config struct {
	// Group is the number of the Raft group.
	Group uint32
	// Budget bounds the memory for items. Machines of a node share one.
	Budget *Budget
	// Indexes is what the node indexes; nil for nothing. Machines of a node share one.
	Indexes *Indexes
	// Metrics shows what the machines of a node hold and do; nil for nobody.
	Metrics *Metrics
	// Verify has Open compare the whole state with its digest, which takes time in
	// proportion to the state.
	Verify bool
}

// DefaultConfig is the configuration of a group's machine, with a budget of 4 MiB of
// its own.
func DefaultConfig(group uint32) Config {
	return Config{Group: group, Budget: NewBudget(4 << 20)}
}

// Deps are what a Machine works with. Logger, Store and Flusher are needed.
type Deps struct {
	Logger hclog.Logger
	// Store holds the group's flushed state; Flusher writes to the same Store.
	Store   storage.Store
	Flusher *writebehind.Flusher
	// OnChange receives the changes of each Apply and Restore, in log order, from
	// the goroutine of that call, when they are visible to readers. It must not
	// block and must not call Apply, Restore or Close. Nil: nobody listens.
	OnChange func(*Changes)
	// Listening tells whether OnChange wants the changes of an Apply at all; nil: always.
	// It is called under the machine's lock and must not block.
	Listening func() bool
	// OnDamage is told when stored data of the group turned out to be damaged, each time;
	// nil: nobody wants to know. It is called from any goroutine, also under the machine's
	// lock, and must not block or call the Machine.
	OnDamage func(error)
}

// Position is a place in a group's log with the configuration in force there.
type Position struct {
	Index, Term uint64
	// Configuration is the encoded Raft configuration, set at ConfigurationIndex.
	Configuration      []byte
	ConfigurationIndex uint64
}

// Machine is the state machine of one Raft group. Apply and Restore are called by
// one owner, one at a time; everything else is safe for concurrent use beside them.
type Machine struct {
	group    uint32
	logger   hclog.Logger
	store    storage.Store
	flusher  *writebehind.Flusher
	onChange func(*Changes)
	// listening is Deps.Listening.
	listening func() bool
	// onDamage is Deps.OnDamage.
	onDamage func(error)
	// verify is Config.Verify.
	verify bool
	// shared is Config.Indexes.
	shared *Indexes
	// metrics is Config.Metrics.
	metrics *Metrics

	// applying serialises Apply and Restore together with their events.
	applying sync.Mutex

	// mu protects the fields below. Order: applying, the flusher's turn, mu.
	mu sync.RWMutex
	// err is ErrStopped with its cause, or ErrClosed; nil while the machine works.
	err     error
	overlay overlay
	// mark is the state after the last applied entry. Invariant: the marks of the
	// store and of the sealed batches are not beyond it.
	mark storage.Mark
	// flushed is the mark in the store, sealedIndex that of the newest sealed batch.
	flushed     storage.Mark
	sealedIndex uint64
	window      window
	// trees are the hash trees of the maps, of this group's share.
	trees trees
	// horizon is what was collected, graves what is listed to be.
	horizon Horizon
	graves  graveTally
	// settled is the dedup window of commands for locks, and added that of additions to
	// counters.
	settled, added window
	locks          *lock.Table
	// adopted tells that the records which a database held before are in the state.
	adopted bool
	// savedFence is the greatest token as the overlay or the store has it.
	savedFence uint64
	// indexes are those of each map.
	indexes map[string][]*mapIndex

	// published is the applied index of which the listener has been told.
	published atomic.Uint64

	// cluster is replaced after each entry that changes it.
	cluster atomic.Pointer[system.State]
}

var _ writebehind.Source = (*Machine)(nil)

// Open reads the group's state from the store, of which it keeps the bookkeeping, the
// hash trees and the number of tombstones, and registers the machine with the flusher. Entries after Applied
// are to be replayed. It does not read the records, unless the store lacks the trees, as
// after Restore, or the whole state is to be verified. It fails with storage.ErrCorrupt
// when what it reads is damaged.
func Open(cfg Config, deps Deps) (*Machine, error) {
	m := &Machine{
		group:     cfg.Group,
		logger:    deps.Logger.Named("fsm").With("group", cfg.Group),
		store:     deps.Store,
		flusher:   deps.Flusher,
		onChange:  deps.OnChange,
		listening: deps.Listening,
		onDamage:  deps.OnDamage,
		verify:    cfg.Verify,
		shared:    cfg.Indexes,
		metrics:   cfg.Metrics,
	}
	m.overlay.budget = cfg.Budget
	state, mark, err := m.readResident()
	if err != nil {
		return nil, fmt.Errorf("open state of group %d: %w", cfg.Group, err)
	}
	m.install(state, mark)
	if err := m.flusher.Register(m); err != nil {
		return nil, fmt.Errorf("open state of group %d: %w", cfg.Group, err)
	}
	cfg.Budget.add(m)
	m.shared.add(m)
	m.metrics.add(m)
	m.logger.Debug("state opened", "index", mark.Index, "term", mark.Term)
	return m, nil
}

// readResident loads what a machine keeps in memory as a whole.
func (m *Machine) readResident() (*resident, storage.Mark, error) {
	reader, err := m.store.NewReader()
	if err != nil {
		return nil, storage.Mark{}, err
	}
	defer reader.Close()
	mark, err := reader.Mark(m.group)
	if err != nil {
		return nil, storage.Mark{}, err
	}
	state, digest := newResident(), uint64(0)
	complete, err := state.trees.readLeaves(reader, m.group)
	if err != nil {
		return nil, storage.Mark{}, err
	}
	for section := range sections {
		load := sections[section].scanned && !(complete && sections[section].treed)
		if !load && !m.verify {
			continue
		}
		share, err := state.readSection(reader, m.group, storage.Section(section), load)
		if err != nil {
			return nil, storage.Mark{}, err
		}
		digest += share
	}
	if m.verify && digest != mark.Digest {
		return nil, storage.Mark{}, fmt.Errorf("digest of the items is %#x, that of the mark %#x: %w", digest, mark.Digest, storage.ErrCorrupt)
	}
	return state, mark, nil
}

// install makes a state that the store holds the current one.
func (m *Machine) install(state *resident, mark storage.Mark) {
	m.overlay.reset()
	m.mark, m.flushed, m.sealedIndex = mark, mark, mark.Index
	m.window, m.trees, m.horizon, m.graves = state.window, state.trees, state.horizon, state.graves
	m.settled, m.added = state.settled, state.added
	m.locks, m.savedFence, m.adopted = state.locks, state.locks.Fence(), state.adopted
	m.cluster.Store(state.cluster)
	m.published.Store(mark.Index)
	m.reindexLocked()
}

// Applied is the index and term of the last log entry that the state contains.
func (m *Machine) Applied() (index, term uint64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mark.Index, m.mark.Term
}

// Published is an applied index of whose changes, and all before, OnChange has returned.
func (m *Machine) Published() uint64 { return m.published.Load() }

// Digest is the sum of the hashes of all items, and the applied index at which it
// holds. It is equal on all replicas at equal index.
func (m *Machine) Digest() (index, digest uint64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mark.Index, m.mark.Digest
}

// ClockFloor is the highest stamp that the state contains or an entry carried. A
// new leader stamps above it.
func (m *Machine) ClockFloor() (millis, counter int64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mark.ClockMillis, m.mark.ClockCounter
}

// Cluster is the snapshot of the cluster documents after the last applied entry.
// It is never nil; outside the system group it is empty.
func (m *Machine) Cluster() *system.State { return m.cluster.Load() }

// Checkpoint returns when the store durably holds everything that was applied
// through at.Index, under a mark that is not below at.Index. Raft counts entries
// that no machine sees (no-ops, barriers): if at is beyond the last applied entry,
// the mark is raised to it, and the caller vouches that none in between is missing.
// It blocks on the disk; errors are those of writebehind.Flusher.FlushThrough,
// ErrStopped and ErrClosed.
func (m *Machine) Checkpoint(ctx context.Context, at Position) error {
	if err := m.raise(at); err != nil {
		return fmt.Errorf("checkpoint at %d: %w", at.Index, err)
	}
	if err := m.flusher.FlushThrough(ctx, m.group, at.Index); err != nil {
		return fmt.Errorf("checkpoint at %d: %w", at.Index, err)
	}
	return nil
}

func (m *Machine) raise(at Position) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if at.Index > m.mark.Index {
		m.mark.Index, m.mark.Term = at.Index, at.Term
	}
	if at.ConfigurationIndex > m.mark.ConfigurationIndex {
		m.mark.Configuration = append([]byte(nil), at.Configuration...)
		m.mark.ConfigurationIndex = at.ConfigurationIndex
	}
	return nil
}

// Close detaches the machine from the flusher without flushing: what is dirty is in
// the log. It waits for a running flush. Calling it again does nothing.
func (m *Machine) Close() error {
	m.flusher.Unregister(m)
	m.shared.remove(m)
	m.metrics.remove(m)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !errors.Is(m.err, ErrClosed) {
		m.err = ErrClosed
		m.overlay.budget.remove(m)
		m.overlay.reset()
		m.defineLocked(nil, true)
	}
	return nil
}

// stopLocked puts the machine out of service for good. What the open batch holds
// is not a state between two entries any more, and is never sealed.
func (m *Machine) stopLocked(cause error) {
	m.err = fmt.Errorf("%w: %w", ErrStopped, cause)
}
