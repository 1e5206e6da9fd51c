package raftnode

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftnode/logstore"
)

// groupLog is what a group needs of its part of the log; *logstore.GroupLog
// implements it.
type groupLog interface {
	raft.LogStore
	raft.StableStore
	// SetCommitHint notes that index is committed, to travel with the next write.
	SetCommitHint(index uint64)
	// CommitHint is the highest index that is known to be committed.
	CommitHint() uint64
}

// guardedLog is a group's log as the library sees it. The library panics or carries
// on when its storage fails, depending on the call; here the first failure stops
// the node, and the call does not return.
type guardedLog struct {
	groupLog
	group uint32
	fatal func(error)
	// stop ends the waiting of failed calls.
	stop <-chan struct{}
	// armed is set once the library runs on this log. Before, errors are returned.
	armed atomic.Bool
	// kept is the index above which entries are known to be right although the
	// library will remove them: see keepAbove.
	kept atomic.Uint64

	// full gets a token when another limit bytes of entries were stored.
	limit int64
	full  chan struct{}
	// entries and bytes were stored since the last token. Only the library's main loop
	// uses them.
	entries, bytes int64
	// mean is the mean size of the entries before the last token.
	mean atomic.Int64
}

var _ raft.MonotonicLogStore = (*guardedLog)(nil)

// IsMonotonic implements raft.MonotonicLogStore: the log takes no gaps.
func (g *guardedLog) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore.
func (g *guardedLog) FirstIndex() (uint64, error) {
	index, err := g.groupLog.FirstIndex()
	return index, g.check("read first index", err)
}

// LastIndex implements raft.LogStore.
func (g *guardedLog) LastIndex() (uint64, error) {
	index, err := g.groupLog.LastIndex()
	return index, g.check("read last index", err)
}

// GetLog implements raft.LogStore.
func (g *guardedLog) GetLog(index uint64, log *raft.Log) error {
	err := g.groupLog.GetLog(index, log)
	if errors.Is(err, raft.ErrLogNotFound) {
		return raft.ErrLogNotFound
	}
	return g.check("read entry", err)
}

// StoreLog implements raft.LogStore.
func (g *guardedLog) StoreLog(log *raft.Log) error { return g.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (g *guardedLog) StoreLogs(logs []*raft.Log) error {
	g.count(logs)
	return g.check("store entries", g.groupLog.StoreLogs(logs))
}

// count measures what is stored.
func (g *guardedLog) count(logs []*raft.Log) {
	g.entries += int64(len(logs))
	for _, l := range logs {
		g.bytes += int64(len(l.Data))
	}
	if g.bytes < g.limit {
		return
	}
	g.mean.Store(g.bytes / g.entries)
	g.entries, g.bytes = 0, 0
	select {
	case g.full <- struct{}{}:
	default:
	}
}

// DeleteRange implements raft.LogStore.
func (g *guardedLog) DeleteRange(first, last uint64) error {
	if kept := g.kept.Load(); kept > 0 && first <= kept {
		last = min(last, kept)
	}
	return g.check("delete entries", g.groupLog.DeleteRange(first, last))
}

// keepAbove protects the entries above index when the log is next emptied. After a
// snapshot arrived the library removes the whole log, even what the leader counts
// as stored here.
func (g *guardedLog) keepAbove(index uint64) { g.kept.Store(index) }

// Set implements raft.StableStore.
func (g *guardedLog) Set(key, value []byte) error {
	return g.check("store "+string(key), g.groupLog.Set(key, value))
}

// SetUint64 implements raft.StableStore.
func (g *guardedLog) SetUint64(key []byte, value uint64) error {
	return g.check("store "+string(key), g.groupLog.SetUint64(key, value))
}

// Get implements raft.StableStore.
func (g *guardedLog) Get(key []byte) ([]byte, error) {
	value, err := g.groupLog.Get(key)
	if isKeyNotFound(err) {
		return nil, err
	}
	return value, g.check("read "+string(key), err)
}

// GetUint64 implements raft.StableStore.
func (g *guardedLog) GetUint64(key []byte) (uint64, error) {
	value, err := g.groupLog.GetUint64(key)
	if isKeyNotFound(err) {
		return 0, err
	}
	return value, g.check("read "+string(key), err)
}

// check stops the node when err is a failure. Then the calling goroutine waits for
// the end of the group, and ends without going on: every goroutine that the library
// calls storage from is prepared to be unwound.
func (g *guardedLog) check(op string, err error) error {
	if err == nil || !g.armed.Load() {
		return err
	}
	g.fatal(fmt.Errorf("log of group %d: %s: %w", g.group, op, err))
	<-g.stop
	runtime.Goexit()
	return err
}

// isKeyNotFound recognises the answer for a key that was never set. The library
// itself compares the text.
func isKeyNotFound(err error) bool {
	return err != nil && err.Error() == logstore.ErrKeyNotFound.Error()
}
