package logstore

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// rewriteBytes is how much is copied with one write, so that copying does not
// hold up the writes of others.
const rewriteBytes = 256 << 10

// rewriteDueLocked reports whether live entries have to leave the oldest segment:
// the log is long and most of it is dead. Its size so stays below the larger of
// RewriteSegments+1 segments and twice what is live plus one segment, while each
// byte copied frees at least another one.
func (l *Log) rewriteDueLocked() bool {
	if oldest := l.segments[0]; oldest.number <= l.renewThrough && len(l.segments) > 1 && oldest.live.Load() > 0 {
		return true
	}
	if len(l.segments) <= l.cfg.RewriteSegments || l.segments[0].live.Load() == 0 {
		return false
	}
	total, live := l.sizesLocked()
	return 2*live < total
}

func (l *Log) sizesLocked() (total, live int64) {
	for _, s := range l.segments {
		total += s.size.Load()
		live += s.live.Load()
	}
	return total, live
}

// candidate is a live entry of the segment that is being emptied.
type candidate struct {
	index uint64
	loc   location
}

// rewrite copies one portion of the live entries of s to the end of the log. s must
// not be the active segment; only this goroutine frees segments.
func (l *Log) rewrite(s *segment) error {
	for _, g := range l.allGroups() {
		truncations, found := g.liveIn(s)
		if len(found) > 0 {
			return g.rewrite(truncations, found)
		}
	}
	if live := s.live.Load(); live != 0 {
		return fmt.Errorf("%s counts %d live bytes but no group has entries there", s.path, live)
	}
	return nil
}

// liveIn returns the first entries of the group that lie in s, up to one portion,
// and how often the end of the log had been cut when they were looked at.
func (g *GroupLog) liveIn(s *segment) (truncations uint64, found []candidate) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	size := 0
	for i, loc := range g.index.locs[g.index.head:] {
		if loc.seg != s {
			continue
		}
		if size += int(loc.size); size > rewriteBytes && len(found) > 0 {
			break
		}
		found = append(found, candidate{index: g.index.first + uint64(i), loc: loc})
	}
	return g.truncations, found
}

// body returns the encoded entry c: from the file or, where that is damaged, from memory.
func (g *GroupLog) body(c candidate) ([]byte, error) {
	r, err := c.loc.seg.readRecord(g.id, c.loc)
	if err == nil || !errors.Is(err, ErrCorrupt) {
		return r.body, err
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	var log raft.Log
	if !g.cache.get(c.index, &log) || log.Term != c.loc.term {
		return nil, err
	}
	return appendEntryRecord(nil, g.id, &log)[recordHeaderBytes:], nil
}

// rewrite copies the entries that are still live. If the end of the log was cut
// since they were found, or is about to be, none is copied: another entry may have
// taken the index.
func (g *GroupLog) rewrite(truncations uint64, found []candidate) error {
	bodies := make([][]byte, len(found))
	copied := 0
	for i, c := range found {
		body, err := g.body(c)
		if err != nil {
			return fmt.Errorf("copy entry %d of group %d: %w", c.index, g.id, err)
		}
		bodies[i] = body
		copied += len(body)
	}
	g.log.counters.rewritten.Add(uint64(copied))
	return g.log.submit(func(b []byte) ([]byte, error) {
		if g.queued.truncations != truncations {
			return b, nil
		}
		for i, c := range found {
			if c.index >= g.queued.first && g.queued.first != 0 {
				b = appendRewriteRecord(b, g.id, bodies[i])
			}
		}
		return b, nil
	})
}
