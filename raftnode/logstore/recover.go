package logstore

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// recover reads the log from disk, or begins a new one, and leaves l ready to write.
func (l *Log) recover() error {
	numbers, err := l.listSegments()
	if err != nil {
		return err
	}
	if len(numbers) == 0 {
		l.sequence = 1
		l.active, err = l.createSegment(1)
		if err != nil {
			return err
		}
		l.segments = []*segment{l.active}
		return nil
	}
	for i, number := range numbers {
		if number != numbers[0]+uint64(i) {
			return fmt.Errorf("%w: segment %s is missing", ErrCorrupt, segmentName(numbers[0]+uint64(i)))
		}
		s, err := openSegment(l.fs, l.cfg.Dir, number)
		if err != nil {
			return err
		}
		l.segments = append(l.segments, s)
	}
	return l.replay()
}

// listSegments returns the numbers of the segment files, ascending, and removes
// files that never became a segment.
func (l *Log) listSegments() ([]uint64, error) {
	names, err := l.fs.List(l.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("list log directory: %w", err)
	}
	var numbers []uint64
	for _, name := range names {
		number, ok, err := parseSegmentName(name)
		switch {
		case err != nil:
			return nil, err
		case ok:
			numbers = append(numbers, number)
		case strings.HasSuffix(name, tempSuffix):
			if err := l.fs.Remove(filepath.Join(l.cfg.Dir, name)); err != nil {
				return nil, fmt.Errorf("remove unused file: %w", err)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// replay applies all segments in order and makes the last one ready to go on.
func (l *Log) replay() error {
	var end scanEnd
	r := &replayer{log: l}
	for i, s := range l.segments {
		var err error
		if end, err = r.run(s, i == 0); err != nil {
			return err
		}
	}
	for _, g := range l.allGroups() {
		if err := g.finishRecovery(l.segments[0].path); err != nil {
			return err
		}
	}
	l.active = l.segments[len(l.segments)-1]
	return l.settle(end)
}

// settle makes what replay found durable: a process that was killed may have left
// whole frames that never reached the medium, and they are about to be relied upon.
// It needs no free space.
func (l *Log) settle(end scanEnd) error {
	s := l.active
	if !end.sealed {
		if err := s.checkNothingAfter(end.offset); err != nil {
			return err
		}
		if s.filled > end.offset {
			l.logger.Info("cutting the log behind its last frame", "file", s.path,
				"offset", end.offset, "size", s.filled, "torn", end.torn)
			if err := s.file.Truncate(end.offset); err != nil {
				return fmt.Errorf("cut %s: %w", s.path, err)
			}
			s.filled = end.offset
		}
	}
	if err := syncFile(s.file); err != nil {
		return fmt.Errorf("sync %s: %w", s.path, err)
	}
	if err := l.fs.SyncDir(l.cfg.Dir); err != nil {
		return fmt.Errorf("sync log directory: %w", err)
	}
	l.sealed = end.sealed
	return nil
}

// finishRecovery verifies that every entry was found and derives the rest of the
// state. file is the oldest segment.
func (g *GroupLog) finishRecovery(file string) error {
	for i, loc := range g.index.locs[g.index.head:] {
		if loc.seg == nil {
			return corrupt(file, segmentHeaderBytes, "entry %d of group %d is in no segment", g.index.first+uint64(i), g.id)
		}
	}
	g.queued = queuedState{
		first: g.index.first, last: g.index.last(),
		hint: g.durableHint, truncations: g.truncations,
	}
	g.hint.Store(g.durableHint)
	return nil
}
