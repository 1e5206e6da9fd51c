package logstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// write is the writer goroutine: it takes everything that is queued, makes it
// durable with one write and one sync, and completes the callers.
func (l *Log) write() {
	for {
		b := l.take(false)
		if b == nil {
			// Nothing waits: confirm the last frame, off every caller's path.
			if err := l.seal(); err != nil {
				l.fail(err)
				return
			}
			if b = l.take(true); b == nil {
				return
			}
		}
		if err := l.flush(b); err != nil {
			l.fail(err)
			b.round.finish(l.usable())
			return
		}
		b.round.finish(nil)
		b.reset(2 * l.cfg.QueueBytes)
		l.idle = b
		l.maintainIfNeeded()
	}
}

// flush makes b durable and then visible.
func (l *Log) flush(b *batch) error {
	l.busySince.Store(l.now() + 1)
	defer l.busySince.Store(0)
	if l.rotationDue(len(b.buf)) {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	s, offset := l.active, l.active.size.Load()
	s.finishFrame(b.buf, frameBatch, l.sequence, offset)
	if err := s.write(b.buf, offset); err != nil {
		return err
	}
	l.sealed = false
	wrote := l.now()
	if err := syncFile(s.file); err != nil {
		return fmt.Errorf("sync %s: %w", s.path, err)
	}
	l.metrics.observe(len(b.logs), len(b.buf), time.Duration(l.now()-wrote))
	l.counters.add(len(b.logs), len(b.buf))
	l.sequence++
	s.size.Add(int64(len(b.buf)))
	if err := l.applyBatch(b, s, offset); err != nil {
		return fmt.Errorf("apply records that were just written: %w", err)
	}
	return nil
}

// applyBatch makes the records of a durable batch visible to readers.
func (l *Log) applyBatch(b *batch, s *segment, offset int64) error {
	logs := b.logs
	var g *GroupLog
	defer func() {
		if g != nil {
			g.mu.Unlock()
		}
	}()
	for at := frameHeaderBytes; at < len(b.buf); {
		r, end := recordAt(b.buf, at)
		if g == nil || g.id != r.group {
			if g != nil {
				g.mu.Unlock()
			}
			g = l.Group(r.group)
			g.mu.Lock()
		}
		if err := g.applyLocked(r, location{seg: s, offset: uint32(offset) + uint32(at), size: uint32(end - at)}); err != nil {
			return err
		}
		if r.kind == recordEntry {
			g.cache.add(logs[0])
			logs = logs[1:]
		}
		at = end
	}
	return nil
}

// seal marks the end of the log, so that damage to the last frame is told from a
// torn write. It is not synced: it guards against bit rot, not against power loss.
func (l *Log) seal() error {
	if l.sealed {
		return nil
	}
	l.busySince.Store(l.now() + 1)
	defer l.busySince.Store(0)
	s, offset := l.active, l.active.size.Load()
	s.finishFrame(l.sealFrame[:], frameSeal, l.sequence, offset)
	if err := s.write(l.sealFrame[:], offset); err != nil {
		return err
	}
	l.sealed = true
	return nil
}

// rotationDue reports whether the next frame belongs into a new segment: this one
// is full, it is to be renewed, or it is a file of growing length and a better one is
// ready.
func (l *Log) rotationDue(frame int) bool {
	if l.active.size.Load()+int64(frame) > l.cfg.SegmentBytes {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active.number <= l.renewThrough {
		return true
	}
	return l.spare != nil && !l.wellFilled(l.active.filled)
}

// rotate makes a new segment the active one. All frames before are durable.
func (l *Log) rotate() error {
	s, err := l.createSegment(l.active.number + 1)
	if err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	l.mu.Lock()
	l.segments = append(l.segments, s)
	l.metrics.segments(len(l.segments))
	l.metrics.skip(l.segments[0])
	l.mu.Unlock()
	l.active, l.sealed = s, false
	l.counters.rotations.Add(1)
	return nil
}

// createSegment creates segment number with a checkpoint of the present state.
func (l *Log) createSegment(number uint64) (*segment, error) {
	sp, err := l.takeSpare(number)
	if err != nil {
		return nil, err
	}
	s := newSegment(l.cfg.Dir, number, sp.file, sp.filled)
	if err := l.beginSegment(s, sp.path); err != nil {
		return nil, errors.Join(err, sp.file.Close())
	}
	return s, nil
}

// beginSegment writes the first frame of s. The file takes its name when that is
// durable, so a file with the name of a segment is never half made.
func (l *Log) beginSegment(s *segment, tempPath string) error {
	b := append(appendSegmentHeader(nil, s.number), make([]byte, frameHeaderBytes)...)
	for _, g := range l.allGroups() {
		if image := g.image(); !image.empty() {
			b = appendStateRecord(b, g.id, image)
		}
	}
	s.finishFrame(b[segmentHeaderBytes:], frameCheckpoint, l.sequence, segmentHeaderBytes)
	if err := s.write(b, 0); err != nil {
		return err
	}
	if err := syncFile(s.file); err != nil {
		return fmt.Errorf("sync %s: %w", tempPath, err)
	}
	if err := l.fs.Rename(tempPath, s.path); err != nil {
		return fmt.Errorf("name segment: %w", err)
	}
	if err := l.fs.SyncDir(l.cfg.Dir); err != nil {
		return fmt.Errorf("sync log directory: %w", err)
	}
	l.sequence++
	s.size.Store(int64(len(b)))
	return nil
}

// takeSpare returns the prepared file, or an empty new one if none is ready.
func (l *Log) takeSpare(number uint64) (*spareFile, error) {
	l.mu.Lock()
	sp := l.spare
	l.spare = nil
	l.mu.Unlock()
	if sp != nil {
		return sp, nil
	}
	path := filepath.Join(l.cfg.Dir, segmentName(number)+tempSuffix)
	file, err := l.fs.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	return &spareFile{path: path, file: file}, nil
}

// write writes b at offset.
func (s *segment) write(b []byte, offset int64) error {
	if _, err := s.file.WriteAt(b, offset); err != nil {
		return fmt.Errorf("write %s: %w", s.path, err)
	}
	return nil
}
