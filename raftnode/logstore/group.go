package logstore

import (
	"bytes"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// GroupLog is the log and the stable store of one Raft group. All methods are safe
// for concurrent use. Methods that change something block until the change is
// durable; readers see it from then on. A change is made durable together with
// whatever the other groups have queued.
type GroupLog struct {
	log *Log
	id  uint32
	// hint is the highest commit index that was set.
	hint atomic.Uint64
	// queued is the state that the queued requests lead to. Protected by log.mu.
	queued queuedState

	mu     sync.RWMutex // protects everything below, the durable state
	index  entryIndex
	stable map[string][]byte
	// durableHint is the commit hint in the log.
	durableHint uint64
	// truncations counts the durable removals of those that queued counts.
	truncations uint64
	cache       entryCache
	// heldVoteTerm is a value of LastVoteTerm that waits for its candidate, see Set.
	heldVoteTerm []byte
}

// queuedState is what new requests are checked against.
type queuedState struct {
	first, last uint64 // 0 when the log is empty
	hint        uint64 // highest hint in a queued or durable record
	// truncations counts removals from the end of the log, whole removals included.
	truncations uint64
}

var (
	_ raft.LogStore          = (*GroupLog)(nil)
	_ raft.StableStore       = (*GroupLog)(nil)
	_ raft.MonotonicLogStore = (*GroupLog)(nil)
)

func newGroupLog(l *Log, id uint32) *GroupLog {
	return &GroupLog{
		log: l, id: id,
		stable: make(map[string][]byte),
		cache:  entryCache{maxEntries: l.cfg.CacheEntries, maxBytes: l.cfg.CacheBytes},
	}
}

// IsMonotonic implements raft.MonotonicLogStore: indexes have no gaps. After all
// entries were deleted the log may go on at any index.
func (g *GroupLog) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore. It is 0 for an empty log.
func (g *GroupLog) FirstIndex() (uint64, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.index.first, g.log.usable()
}

// LastIndex implements raft.LogStore. It is 0 for an empty log.
func (g *GroupLog) LastIndex() (uint64, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.index.last(), g.log.usable()
}

// GetLog implements raft.LogStore. The newest entries come from memory and share
// their bytes with the entries that were stored; others are read from the file and
// verified. Neither may be modified. Errors: raft.ErrLogNotFound, unwrapped; or
// wrapping ErrCorrupt, ErrClosed, ErrFailed or the read error.
func (g *GroupLog) GetLog(index uint64, log *raft.Log) error {
	if err := g.log.usable(); err != nil {
		return fmt.Errorf("get log %d of group %d: %w", index, g.id, err)
	}
	g.mu.RLock()
	if g.cache.get(index, log) {
		g.mu.RUnlock()
		return nil
	}
	found := g.index.at(index)
	if found == nil {
		g.mu.RUnlock()
		return raft.ErrLogNotFound
	}
	loc := *found
	loc.seg.readers.Add(1)
	g.mu.RUnlock()
	defer loc.seg.readers.Add(-1)
	if err := g.read(index, loc, log); err != nil {
		return fmt.Errorf("get log %d of group %d: %w", index, g.id, err)
	}
	return nil
}

// read reads the entry index from loc.
func (g *GroupLog) read(index uint64, loc location, log *raft.Log) error {
	r, err := loc.seg.readRecord(g.id, loc)
	if err != nil {
		return err
	}
	if err := decodeEntry(r.body, log); err != nil {
		return corrupt(loc.seg.path, int64(loc.offset), "entry: %v", err)
	}
	if log.Index != index || log.Term != loc.term {
		return corrupt(loc.seg.path, int64(loc.offset), "entry %d of term %d, want %d of term %d",
			log.Index, log.Term, index, loc.term)
	}
	return nil
}

// SetCommitHint notes that the entries up to index are committed. The note is
// written along with the next write of the group, never by itself; it is lost if
// there is none. Lower values than before are ignored. It does not block.
func (g *GroupLog) SetCommitHint(index uint64) {
	for {
		old := g.hint.Load()
		if index <= old || g.hint.CompareAndSwap(old, index) {
			return
		}
	}
}

// clampHint lowers the hint to last and returns it. Raft never removes committed
// entries from the end of a log; should a repair tool do it, the hint must not
// cover what is written in their place.
func (g *GroupLog) clampHint(last uint64) uint64 {
	for {
		hint := g.hint.Load()
		if hint <= last || g.hint.CompareAndSwap(hint, last) {
			return min(hint, last)
		}
	}
}

// CommitHint returns the highest index that was set, in this run or, as far as it
// reached the disk, in an earlier one: entries up to it are committed. It may lie
// outside the present log after entries were deleted.
func (g *GroupLog) CommitHint() uint64 { return g.hint.Load() }

// image returns the durable state. Stable values are replaced, never changed, so a
// copy of the map is enough.
func (g *GroupLog) image() groupImage {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return groupImage{
		first: g.index.first, last: g.index.last(),
		hint: g.durableHint, stable: maps.Clone(g.stable),
	}
}

// empty reports whether the group is as if it had never been used.
func (s groupImage) empty() bool { return s.first == 0 && s.hint == 0 && len(s.stable) == 0 }

// equal compares everything that a checkpoint holds.
func (s groupImage) equal(t groupImage) bool {
	return s.first == t.first && s.last == t.last && s.hint == t.hint &&
		maps.EqualFunc(s.stable, t.stable, bytes.Equal)
}
