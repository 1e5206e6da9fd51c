package logstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// renewPause is how often Renew looks whether the old segments are gone.
const renewPause = 20 * time.Millisecond

// Scrub reads every durable frame from the files and checks it. It calls pace with the
// number of bytes before it goes on from each; an error of pace ends it. An error that
// wraps ErrCorrupt names the first damage: Open would refuse the log. It blocks no
// writer, and returns how much was read. No segment is freed meanwhile.
func (l *Log) Scrub(ctx context.Context, pace func(ctx context.Context, bytes int) error) (total int64, err error) {
	l.mu.Lock()
	held := append([]*segment(nil), l.segments...)
	for _, s := range held {
		s.readers.Add(1)
	}
	l.mu.Unlock()
	defer func() {
		for _, s := range held {
			s.readers.Add(-1)
		}
	}()
	for _, s := range held {
		if err := l.usable(); err != nil {
			return total, fmt.Errorf("scrub log: %w", err)
		}
		n, err := s.scrub(ctx, pace)
		total += n
		if err != nil {
			return total, fmt.Errorf("scrub log: %w", err)
		}
	}
	return total, nil
}

// scrub checks the durable frames of a segment that the caller holds.
func (s *segment) scrub(ctx context.Context, pace func(context.Context, int) error) (int64, error) {
	end := s.size.Load()
	b := make([]byte, segmentHeaderBytes)
	if _, err := s.file.ReadAt(b, 0); err != nil {
		return 0, fmt.Errorf("read %s: %w", s.path, err)
	}
	if err := checkSegmentHeader(b, s.number); err != nil {
		return 0, fmt.Errorf("%s at offset 0: %w", s.path, err)
	}
	for at := int64(segmentHeaderBytes); at < end; {
		n, err := s.scrubFrame(at, end)
		if err != nil {
			return at, err
		}
		if err := pace(ctx, n); err != nil {
			return at, err
		}
		at += int64(n)
	}
	return end, nil
}

// scrubFrame checks the frame at offset, which ends at end or before, and returns its
// length.
func (s *segment) scrubFrame(offset, end int64) (int, error) {
	b := make([]byte, frameHeaderBytes)
	if _, err := s.file.ReadAt(b, offset); err != nil {
		return 0, fmt.Errorf("read %s: %w", s.path, err)
	}
	h, ok := parseFrameHeader(b, s.seed, offset)
	if !ok || offset+frameHeaderBytes+int64(h.length) > end {
		return 0, corrupt(s.path, offset, "frame header")
	}
	records := make([]byte, h.length)
	if _, err := s.file.ReadAt(records, offset+frameHeaderBytes); err != nil {
		return 0, fmt.Errorf("read %s: %w", s.path, err)
	}
	if !checkRecords(records, s.seed, h.recordsCRC) {
		return 0, corrupt(s.path, offset, "records of a frame")
	}
	return frameHeaderBytes + h.length, nil
}

// Unreadable returns the highest index of the group whose entry is damaged in the file and
// not in memory, 0 if there is none. Errors are those of reading.
func (g *GroupLog) Unreadable() (index uint64, err error) {
	first, err := g.FirstIndex()
	if err != nil || first == 0 {
		return 0, err
	}
	last, err := g.LastIndex()
	if err != nil {
		return 0, err
	}
	var entry raft.Log
	for at := last; at >= first; at-- {
		err := g.GetLog(at, &entry)
		switch {
		case errors.Is(err, ErrCorrupt):
			return at, nil
		case err != nil && !errors.Is(err, raft.ErrLogNotFound): // removed meanwhile
			return 0, err
		}
	}
	return 0, nil
}

// Renew writes everything that the log holds once more, into new files, and removes the
// present ones: what is damaged in them does not matter any more. Every entry must be
// readable, see Unreadable. It blocks until that is done or ctx ends; the log goes on
// with it in the latter case.
func (l *Log) Renew(ctx context.Context) error {
	l.mu.Lock()
	through := l.segments[len(l.segments)-1].number
	l.renewThrough = max(l.renewThrough, through)
	l.mu.Unlock()
	if err := l.submit(l.repeatHint); err != nil {
		return fmt.Errorf("renew log: %w", err)
	}
	for {
		l.mu.Lock()
		done := l.segments[0].number > through
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case l.kick <- struct{}{}:
		default: // it is awake already
		}
		select {
		case <-time.After(renewPause):
		case <-l.failed:
			return fmt.Errorf("renew log: %w", l.usable())
		case <-ctx.Done():
			return fmt.Errorf("renew log: %w", ctx.Err())
		}
	}
}

// repeatHint writes what some group, 0 if there is none, knows already, so that there is
// something to write: that begins a new segment.
func (l *Log) repeatHint(b []byte) ([]byte, error) {
	g := l.Group(0)
	return appendIndexRecord(b, recordHint, g.id, g.queued.hint), nil
}
