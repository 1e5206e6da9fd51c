package logstore

import (
	"errors"
	"fmt"
	"path/filepath"
)

// prefillStart is the size at which an active segment that was not filled ahead
// asks for one that is. Short-lived logs never get there.
const prefillStart = 1 << 20

// spareFile is a file that stands ready to become the next segment.
type spareFile struct {
	path   string
	file   File
	filled int64
}

// maintain is the maintenance goroutine: it frees segments, copies entries out of
// old ones and prepares files for new ones, away from the path of writes.
func (l *Log) maintain() {
	for {
		select {
		case <-l.quit:
			return
		case <-l.kick:
		}
		if err := l.maintainOnce(); err != nil && !errors.Is(err, ErrClosed) {
			l.fail(err)
			return
		}
	}
}

// maintainIfNeeded wakes the maintenance goroutine if it has something to do.
func (l *Log) maintainIfNeeded() {
	l.mu.Lock()
	needed := l.oldestDeadLocked() || l.spareDueLocked() || l.rewriteDueLocked()
	l.mu.Unlock()
	if !needed {
		return
	}
	select {
	case l.kick <- struct{}{}:
	default: // it is awake already and looks again
	}
}

func (l *Log) maintainOnce() error {
	for {
		if err := l.freeDead(); err != nil {
			return err
		}
		l.mu.Lock()
		due, oldest := l.rewriteDueLocked(), l.segments[0]
		l.mu.Unlock()
		if !due {
			break
		}
		if err := l.rewrite(oldest); err != nil {
			return err
		}
	}
	l.prepareSpare()
	return nil
}

// oldestDeadLocked reports whether the oldest segment can be freed. Segments go
// strictly in order: a later one may hold the deletion of what is in an earlier one.
func (l *Log) oldestDeadLocked() bool {
	oldest := l.segments[0]
	return len(l.segments) > 1 && oldest.live.Load() == 0 && oldest.readers.Load() == 0
}

// freeDead frees segments from the oldest on until one is needed.
func (l *Log) freeDead() error {
	for {
		l.mu.Lock()
		if !l.oldestDeadLocked() {
			l.mu.Unlock()
			return nil
		}
		s := l.segments[0]
		l.segments = l.segments[1:]
		recycle := l.cfg.Prefill && l.spare == nil
		l.mu.Unlock()
		if err := l.free(s, recycle); err != nil {
			return fmt.Errorf("free segment: %w", err)
		}
	}
}

// free removes the file of s or, with recycle, keeps it for a later segment. The
// change is durable before the next segment can be freed, so that a crash never
// leaves a gap in the numbers.
func (l *Log) free(s *segment, recycle bool) error {
	written := max(s.filled, s.size.Load())
	recycle = recycle && l.wellFilled(written) && written <= 2*l.cfg.SegmentBytes
	path := l.sparePath()
	var err error
	if recycle {
		err = l.fs.Rename(s.path, path)
	} else {
		err = errors.Join(s.file.Close(), l.fs.Remove(s.path))
	}
	if err = errors.Join(err, l.fs.SyncDir(l.cfg.Dir)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if recycle {
		l.spare = &spareFile{path: path, file: s.file, filled: written}
	}
	l.metrics.segments(len(l.segments))
	return nil
}

// sparePath returns a name that no other file of this run has: the writer may still
// be renaming the spare before.
func (l *Log) sparePath() string {
	l.spareCount++
	return filepath.Join(l.cfg.Dir, fmt.Sprintf("spare-%d%s", l.spareCount, tempSuffix))
}

// wellFilled reports whether a file of this length is worth having as a segment.
func (l *Log) wellFilled(length int64) bool {
	return !l.cfg.Prefill || length >= l.cfg.SegmentBytes/2
}

func (l *Log) spareDueLocked() bool {
	if !l.cfg.Prefill || l.spare != nil || l.spareFailed == l.segments[len(l.segments)-1] {
		return false
	}
	active := l.segments[len(l.segments)-1]
	start := l.cfg.SegmentBytes / 2
	if !l.wellFilled(active.filled) {
		start = min(start, prefillStart)
	}
	return active.size.Load() > start
}

// prepareSpare fills a file for the next segment, if it is time. A failure costs
// speed only: the log then grows its next segment as it writes it. One attempt is
// made for each segment.
func (l *Log) prepareSpare() {
	l.mu.Lock()
	due, active := l.spareDueLocked(), l.segments[len(l.segments)-1]
	l.mu.Unlock()
	if !due {
		return
	}
	path := l.sparePath()
	sp, err := l.fillSpare(path)
	if err != nil {
		l.logger.Warn("cannot prepare the next log segment", "file", path, "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare = sp
	if sp == nil {
		l.spareFailed = active
	}
}

// fillSpare creates a file and writes it full of zeros, in pieces that are synced
// one by one so that the syncs of the writer never wait for much. It returns nil if
// the log is closed meanwhile.
func (l *Log) fillSpare(path string) (*spareFile, error) {
	file, err := l.fs.Create(path)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, min(l.cfg.SegmentBytes, 1<<20))
	for at := int64(0); at < l.cfg.SegmentBytes; at += int64(len(zeros)) {
		select {
		case <-l.quit:
			return nil, errors.Join(file.Close(), l.fs.Remove(path))
		default:
		}
		if _, err = file.WriteAt(zeros, at); err == nil {
			err = file.Sync()
		}
		if err != nil {
			return nil, errors.Join(err, file.Close(), l.fs.Remove(path))
		}
	}
	return &spareFile{path: path, file: file, filled: l.cfg.SegmentBytes}, nil
}
