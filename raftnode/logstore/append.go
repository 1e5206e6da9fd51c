package logstore

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// StoreLog implements raft.LogStore.
func (g *GroupLog) StoreLog(log *raft.Log) error {
	return g.StoreLogs([]*raft.Log{log})
}

// StoreLogs implements raft.LogStore. It blocks until all entries are durable. The
// first index must follow the last one of the log, unless that is empty, and the
// others must follow each other. The entries are kept in memory and must not be
// modified afterwards. Errors wrap ErrTooLarge and ErrNotContiguous, or ErrClosed
// and ErrFailed, after which any prefix of the entries may be in the log.
func (g *GroupLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	err := checkEntries(logs)
	if err == nil {
		err = g.appendEntries(logs)
	}
	if err != nil {
		return fmt.Errorf("store logs of group %d: %w", g.id, err)
	}
	return nil
}

// checkEntries verifies what does not depend on the log.
func checkEntries(logs []*raft.Log) error {
	next := logs[0].Index
	if next == 0 {
		return fmt.Errorf("%w: index 0", ErrNotContiguous)
	}
	for _, log := range logs {
		if log.Index != next {
			return fmt.Errorf("%w: %d after %d", ErrNotContiguous, log.Index, next-1)
		}
		if entryBytes(log) > MaxEntryBytes {
			return fmt.Errorf("%w: entry %d of %d bytes", ErrTooLarge, log.Index, entryBytes(log))
		}
		next++
	}
	return nil
}

func (g *GroupLog) appendEntries(logs []*raft.Log) error {
	r, err := g.enqueueEntries(logs)
	if err != nil {
		return err
	}
	return r.wait()
}

// enqueueEntries queues the entries, over several batches when they are many. The
// last round decides: batches become durable in order, and the first that fails
// fails all later ones.
func (g *GroupLog) enqueueEntries(logs []*raft.Log) (r *round, err error) {
	l := g.log
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(logs) > 0 {
		if err := l.roomLocked(); err != nil {
			return nil, err
		}
		// Waiting for room may have let another request of the group pass.
		if q := g.queued; q.last != 0 && logs[0].Index != q.last+1 {
			return nil, fmt.Errorf("%w: %d after %d", ErrNotContiguous, logs[0].Index, q.last)
		}
		logs = logs[g.fillLocked(l.pending, logs):]
		r = l.pending.round
		l.work.Signal()
	}
	return r, nil
}

// fillLocked adds entries to b until it is full, at least one, and returns how many.
func (g *GroupLog) fillLocked(b *batch, logs []*raft.Log) int {
	b.buf = g.appendHintLocked(b.buf)
	if g.queued.first == 0 {
		g.queued.first = logs[0].Index
	}
	n := 0
	for n < len(logs) && (n == 0 || len(b.buf) < g.log.cfg.QueueBytes) {
		b.buf = appendEntryRecord(b.buf, g.id, logs[n])
		n++
	}
	b.logs = append(b.logs, logs[:n]...)
	g.queued.last = logs[n-1].Index
	return n
}

// appendHintLocked adds the commit hint if it has risen since it was last written.
func (g *GroupLog) appendHintLocked(b []byte) []byte {
	hint := g.hint.Load()
	if hint <= g.queued.hint {
		return b
	}
	g.queued.hint = hint
	return appendIndexRecord(b, recordHint, g.id, hint)
}

// DeleteRange implements raft.LogStore: it removes the entries from min to max,
// both included, durably. The range must reach the beginning or the end of the
// log, else ErrMiddleRange; parts outside of the log are ignored.
func (g *GroupLog) DeleteRange(min, max uint64) error {
	err := g.log.submit(func(b []byte) ([]byte, error) {
		return g.deleteLocked(b, min, max)
	})
	if err != nil {
		return fmt.Errorf("delete logs %d to %d of group %d: %w", min, max, g.id, err)
	}
	return nil
}

func (g *GroupLog) deleteLocked(b []byte, min, max uint64) ([]byte, error) {
	q := &g.queued
	switch {
	case q.last == 0 || min > max || max < q.first || min > q.last:
		return b, nil
	case min <= q.first && max >= q.last:
		b = appendIndexRecord(g.appendHintLocked(b), recordDeletePrefix, g.id, q.last+1)
		q.first, q.last = 0, 0
		q.truncations++
	case min <= q.first:
		b = appendIndexRecord(g.appendHintLocked(b), recordDeletePrefix, g.id, max+1)
		q.first = max + 1
	case max >= q.last:
		b = appendIndexRecord(b, recordDeleteSuffix, g.id, min-1)
		q.last = min - 1
		q.truncations++
		q.hint = g.clampHint(q.last)
	default:
		return nil, ErrMiddleRange
	}
	return b, nil
}
