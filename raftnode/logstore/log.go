package logstore

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Log is the write-ahead log of a node. All methods are safe for concurrent use.
type Log struct {
	cfg     Config
	fs      FS
	logger  hclog.Logger
	metrics *metrics
	lock    io.Closer

	mu       sync.Mutex // protects the fields of this block and GroupLog.queued
	work     *sync.Cond // pending has records, or the log stops
	space    *sync.Cond // pending has room, or the log stops
	pending  *batch
	segments []*segment // ascending, never empty; the last one is written
	spare    *spareFile // the file of a future segment, if one is ready
	// spareFailed is the segment during which preparing a spare failed.
	spareFailed *segment
	closing     bool
	// renewThrough is the last segment that is to be written anew.
	renewThrough uint64

	groupsMu sync.RWMutex // protects groups
	groups   map[uint32]*GroupLog

	// Owned by the writer goroutine, by Open before it starts.
	active   *segment
	sequence uint64 // of the next frame
	idle     *batch // the batch that is neither pending nor being written
	sealed   bool   // a seal marks the present end
	// sealFrame is the buffer of the seal.
	sealFrame [frameHeaderBytes]byte

	spareCount int // owned by the maintenance goroutine

	start     time.Time
	busySince atomic.Int64 // nanoseconds after start, plus one; 0 when idle
	counters  counters
	down      atomic.Pointer[stopped]
	failed    chan struct{} // closed by the first failure
	kick      chan struct{} // capacity 1, wakes the maintenance goroutine
	quit      chan struct{} // closed by shut
	shutOnce  sync.Once
	wg        sync.WaitGroup
}

// stopped holds the error that every call returns after the log stopped.
type stopped struct{ err error }

// Open takes the directory, recovers what it holds and starts the log. Everything
// that GetLog and Get return afterwards is on disk. It blocks for one pass over the
// log. Errors wrap ErrLocked, ErrCorrupt (naming file and offset), ErrVersion, or
// are those of the file system.
func Open(cfg Config, deps Deps) (*Log, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("log configuration: %w", err)
	}
	deps = deps.withDefaults()
	l := &Log{
		cfg: cfg, fs: deps.FS, logger: deps.Logger,
		pending: newBatch(), idle: newBatch(),
		groups: make(map[uint32]*GroupLog),
		start:  time.Now(),
		failed: make(chan struct{}), kick: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	l.work, l.space = sync.NewCond(&l.mu), sync.NewCond(&l.mu)
	var err error
	if l.metrics, err = newMetrics(deps.Registerer); err != nil {
		return nil, fmt.Errorf("register log metrics: %w", err)
	}
	if err := l.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open log %s: %w", cfg.Dir, err), l.release())
	}
	l.wg.Go(l.write)
	l.wg.Go(l.maintain)
	return l, nil
}

func (l *Log) open() error {
	if err := l.fs.MkdirAll(l.cfg.Dir); err != nil {
		return err
	}
	lock, err := l.fs.Lock(l.cfg.Dir)
	if err != nil {
		return err
	}
	l.lock = lock
	err = l.recover()
	l.metrics.segments(len(l.segments))
	return err
}

// Group returns the view of one group. It costs nothing until it is written to;
// the same id always yields the same GroupLog.
func (l *Log) Group(id uint32) *GroupLog {
	l.groupsMu.RLock()
	g := l.groups[id]
	l.groupsMu.RUnlock()
	if g != nil {
		return g
	}
	l.groupsMu.Lock()
	defer l.groupsMu.Unlock()
	if g := l.groups[id]; g != nil {
		return g
	}
	g = newGroupLog(l, id)
	l.groups[id] = g
	return g
}

// Position is the number of the next frame: it grows with every write, over all files and
// lives of the log. It may be called before the first write after Open, and after Close.
func (l *Log) Position() uint64 { return l.sequence }

// NodeGroup holds stable keys of the node itself. It is no replica's group, and Groups does
// not list it.
const NodeGroup uint32 = math.MaxUint32

// Groups returns the ids of the groups that have entries or stable keys, ascending.
func (l *Log) Groups() []uint32 {
	var ids []uint32
	for _, g := range l.allGroups() {
		if g.id == NodeGroup {
			continue
		}
		if image := g.image(); image.first != 0 || len(image.stable) > 0 {
			ids = append(ids, g.id)
		}
	}
	return ids
}

// allGroups returns the groups in ascending order of their ids.
func (l *Log) allGroups() []*GroupLog {
	l.groupsMu.RLock()
	defer l.groupsMu.RUnlock()
	all := make([]*GroupLog, 0, len(l.groups))
	for _, id := range slices.Sorted(maps.Keys(l.groups)) {
		all = append(all, l.groups[id])
	}
	return all
}

// DropGroup durably removes all entries and stable keys of a group. Its GroupLog
// stays usable and is empty. Nothing may write to the group at the same time.
func (l *Log) DropGroup(id uint32) error {
	g := l.Group(id)
	err := l.submit(func(b []byte) ([]byte, error) {
		g.queued = queuedState{truncations: g.queued.truncations + 1}
		g.clampHint(0)
		return endRecord(beginRecord(b, recordDrop, id), len(b)), nil
	})
	if err != nil {
		return fmt.Errorf("drop group %d: %w", id, err)
	}
	return nil
}

// StalledFor returns how long the write and fsync in progress have been taking, 0
// if there is none. It never blocks.
func (l *Log) StalledFor() time.Duration {
	since := l.busySince.Load()
	if since == 0 {
		return 0
	}
	return time.Duration(l.now() - (since - 1))
}

// now is the time since Open in nanoseconds.
func (l *Log) now() int64 { return int64(time.Since(l.start)) }
