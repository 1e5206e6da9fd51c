// Package writebehind moves the dirty state of all groups of a node into its
// store, a little later and many changes at a time. Nothing acknowledged depends
// on it: the Raft log is the write-ahead log, and entries behind the mark that
// the store holds are replayed into it.
//
// A Source offers its changes as a queue of batches, each a consistent cut with
// the mark of the state it leads to. The Flusher writes them strictly in order and
// whole, with the mark of the last one, so that the store always holds, for every
// group, exactly the state at its mark. Batches of a group that wait together travel
// in one transaction, an item that several of them changed once. One flush runs at a
// time.
//
// A failed write is never repeated: what reached the medium is unknown. The
// Flusher then stays failed, Failed tells the node to go down, and a restart
// replays the log.
package writebehind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/fsm/storage"
)

// ErrClosed is returned after Close, and ErrRegistered when a group is registered
// twice.
var (
	ErrClosed     = errors.New("flusher is closed")
	ErrRegistered = errors.New("group is registered already")
)

// Config parameterises a Flusher.
type Config struct {
	// Interval is the longest time a change waits for its flush to begin.
	Interval time.Duration
	// BatchSize is the number of items at which a source begins the next batch: the
	// grain of the cuts at which the store can stand.
	BatchSize int
	// Capacity is the number of dirty items at which proposers are slowed, and the
	// most of one group in a transaction, single larger batches excepted. At a
	// quarter of it the flush does not wait for the tick.
	Capacity int
	// CapacityBytes is the same in bytes, whichever is reached first.
	CapacityBytes int
}

// DefaultConfig is 1 s, 100 items, 10,000 items or 32 MiB.
func DefaultConfig() Config {
	return Config{Interval: time.Second, BatchSize: 100, Capacity: 10_000, CapacityBytes: 32 << 20}
}

// Validate reports every setting that is not positive.
func (c Config) Validate() error {
	var errs []error
	if c.Interval <= 0 {
		errs = append(errs, fmt.Errorf("flush interval %s is not positive", c.Interval))
	}
	if c.BatchSize <= 0 {
		errs = append(errs, fmt.Errorf("batch size %d is not positive", c.BatchSize))
	}
	if c.Capacity <= 0 {
		errs = append(errs, fmt.Errorf("capacity %d is not positive", c.Capacity))
	}
	if c.CapacityBytes <= 0 {
		errs = append(errs, fmt.Errorf("capacity of %d bytes is not positive", c.CapacityBytes))
	}
	return errors.Join(errs...)
}

// Deps are what a Flusher works with.
type Deps struct {
	Logger hclog.Logger
	Store  storage.Store
	// Registerer takes the metrics; nil: none are exposed.
	Registerer prometheus.Registerer
}

// Source is the dirty state of one group. The Flusher calls Seal, Oldest and
// Written from one goroutine at a time; the others at any time from any. None may
// call the Flusher back, except Notify.
type Source interface {
	// Group is the number of the group; it never changes.
	Group() uint32
	// Seal ends the open batch, so that everything applied is in sealed batches.
	Seal()
	// Oldest returns the oldest sealed batches that are not yet written, merged into
	// one, and how many they are; zero if there are none. It takes as many as hold at
	// most limit items together, but at least one.
	Oldest(limit int) (b storage.Batch, cuts int)
	// Written removes the cuts that Oldest returned: the store holds them.
	Written(cuts int)
	// Flushed is the mark of the state in the store.
	Flushed() storage.Mark
	// Pending is the number of items in the open batch and the sealed ones, PendingBytes
	// what they take in memory.
	Pending() int
	PendingBytes() int
}

// Flusher is the write-behind of one node. All methods are safe for concurrent
// use.
type Flusher struct {
	cfg     Config
	logger  hclog.Logger
	store   storage.Store
	metrics *metrics

	// turn holds one token; its holder alone writes batches. A channel and not a
	// mutex, because a flush waits for the medium and waiters obey their context.
	turn chan struct{}
	// wake asks Run for a flush; never closed.
	wake chan struct{}
	// failed is closed by fail, after err was stored.
	failed chan struct{}

	// mu protects the fields below. It is never held during a flush.
	mu     sync.Mutex
	err    error
	closed bool
	// room is closed, and replaced, when dirty items may have become fewer.
	room chan struct{}

	// sources is sorted by group; replaced whole, under mu.
	sources atomic.Pointer[[]Source]
}

// New returns a Flusher that writes to deps.Store once Run is called.
func New(cfg Config, deps Deps) (*Flusher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("write-behind: %w", err)
	}
	f := &Flusher{
		cfg:    cfg,
		logger: deps.Logger.Named("writebehind"),
		store:  deps.Store,
		turn:   make(chan struct{}, 1),
		wake:   make(chan struct{}, 1),
		failed: make(chan struct{}),
		room:   make(chan struct{}),
	}
	f.turn <- struct{}{}
	f.sources.Store(&[]Source{})
	var err error
	if f.metrics, err = newMetrics(deps.Registerer, f.Pending); err != nil {
		return nil, fmt.Errorf("write-behind: %w", err)
	}
	return f, nil
}

// BatchSize is the configured size of a batch.
func (f *Flusher) BatchSize() int { return f.cfg.BatchSize }

// Register adds a source. It fails with ErrRegistered if its group has one.
func (f *Flusher) Register(s Source) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	next := slices.Clone(*f.sources.Load())
	i, found := slices.BinarySearchFunc(next, s.Group(), compareGroup)
	if found {
		return fmt.Errorf("register group %d: %w", s.Group(), ErrRegistered)
	}
	next = slices.Insert(next, i, s)
	f.sources.Store(&next)
	return nil
}

// Unregister removes a source and waits for a running flush; afterwards the
// source is not called any more. Its batches that are not yet written are left to
// it. A source that is not registered is ignored.
func (f *Flusher) Unregister(s Source) {
	<-f.turn
	defer f.release()
	f.mu.Lock()
	next := slices.Clone(*f.sources.Load())
	next = slices.DeleteFunc(next, func(other Source) bool { return other == s })
	f.sources.Store(&next)
	f.mu.Unlock()
	f.signalRoom()
}

// Exclusive runs fn while no flush runs, for changes of the store that must not
// meet a batch in flight. fn must not call the Flusher, except Notify.
func (f *Flusher) Exclusive(fn func() error) error {
	<-f.turn
	defer f.release()
	defer f.signalRoom()
	return fn()
}

// Notify is called by a source when its pending items grew: sealed tells that a
// batch was sealed because the next one began. It does not block.
func (f *Flusher) Notify(sealed bool) {
	if (sealed && f.crowded()) || f.Full() {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// crowded reports whether so much is dirty that the tick is not waited for.
func (f *Flusher) crowded() bool { return f.filled(4) }

// filled reports whether the dirty items have reached a fraction of the capacity.
func (f *Flusher) filled(fraction int) bool {
	return f.Pending() >= f.cfg.Capacity/fraction || f.pendingBytes() >= f.cfg.CapacityBytes/fraction
}

func (f *Flusher) pendingBytes() int {
	n := 0
	for _, s := range *f.sources.Load() {
		n += s.PendingBytes()
	}
	return n
}

// Pending is the number of dirty items of all groups.
func (f *Flusher) Pending() int {
	n := 0
	for _, s := range *f.sources.Load() {
		n += s.Pending()
	}
	return n
}

// Full reports whether dirty items have reached the capacity: new proposals
// should wait.
func (f *Flusher) Full() bool { return f.filled(1) }

// WaitBelowCapacity blocks while the Flusher is full. It returns nil when it is
// not, the failure of the store, or the context's error.
func (f *Flusher) WaitBelowCapacity(ctx context.Context) error {
	for {
		f.mu.Lock()
		room, err := f.room, f.err
		f.mu.Unlock()
		switch {
		case err != nil:
			return err
		case !f.Full():
			return nil
		}
		select {
		case <-room:
		case <-f.failed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Err is the failure of the store, nil while it works.
func (f *Flusher) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Failed is closed when a write has failed for good; Err then tells why.
func (f *Flusher) Failed() <-chan struct{} { return f.failed }

func (f *Flusher) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return
	}
	f.err = err
	close(f.failed)
	f.logger.Error("store failed, no more state is written", "err", err)
}

// usable reports why no flush may start: the failure of the store, or ErrClosed.
func (f *Flusher) usable() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	if f.closed {
		return ErrClosed
	}
	return nil
}

func (f *Flusher) signalRoom() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.room)
	f.room = make(chan struct{})
}

func (f *Flusher) release() { f.turn <- struct{}{} }

func compareGroup(s Source, group uint32) int {
	switch {
	case s.Group() < group:
		return -1
	case s.Group() > group:
		return 1
	default:
		return 0
	}
}
