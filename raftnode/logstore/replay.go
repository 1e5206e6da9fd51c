package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
)

// scanEnd says how the valid part of a segment ends.
type scanEnd struct {
	file   string
	offset int64
	sealed bool // a seal confirms the end
	torn   bool // a damaged or incomplete frame follows
}

// readAhead is how much of a segment is read at once.
const readAhead = 1 << 20

// replayer reads the segments one after the other.
type replayer struct {
	log    *Log
	seg    *segment // the present one
	oldest bool     // it is the first
	// before is the end of the segment before.
	before scanEnd
	// window is a part of the file that was read ahead, from offset windowAt on.
	window   []byte
	windowAt int64
	// records is the body of the current frame; it lies in window.
	records []byte
}

// run applies the frames of s in order until the first that is not valid.
func (r *replayer) run(s *segment, oldest bool) (scanEnd, error) {
	r.seg, r.oldest, r.window = s, oldest, r.window[:0]
	if err := r.readHeader(); err != nil {
		return scanEnd{}, err
	}
	for {
		offset := r.seg.size.Load()
		h, end, err := r.readFrame(offset)
		if err != nil {
			return scanEnd{}, err
		}
		if end != nil {
			if offset == segmentHeaderBytes {
				return scanEnd{}, corrupt(r.seg.path, offset, "no valid checkpoint")
			}
			r.before = *end
			return *end, nil
		}
		if err := r.applyFrame(h, offset); err != nil {
			return scanEnd{}, err
		}
		r.log.sequence = h.sequence + 1
		r.seg.size.Store(offset + frameHeaderBytes + int64(h.length))
	}
}

func (r *replayer) readHeader() error {
	b, err := r.read(0, segmentHeaderBytes)
	if err != nil {
		return err
	}
	if len(b) < segmentHeaderBytes {
		return corrupt(r.seg.path, 0, "file of %d bytes", len(b))
	}
	if err := checkSegmentHeader(b, r.seg.number); err != nil {
		return fmt.Errorf("%s at offset 0: %w", r.seg.path, err)
	}
	r.seg.size.Store(segmentHeaderBytes)
	return nil
}

// readFrame reads the frame at offset into r.records. A non-nil end says that there is
// none; an error, that what is there cannot be the result of a crash.
func (r *replayer) readFrame(offset int64) (frameHeader, *scanEnd, error) {
	b, err := r.read(offset, frameHeaderBytes)
	if err != nil {
		return frameHeader{}, nil, err
	}
	if len(b) < frameHeaderBytes {
		return frameHeader{}, &scanEnd{file: r.seg.path, offset: offset}, nil
	}
	h, ok := parseFrameHeader(b, r.seg.seed, offset)
	if !ok {
		return frameHeader{}, &scanEnd{file: r.seg.path, offset: offset}, nil
	}
	if err := r.checkSequence(h.sequence, offset); err != nil {
		return frameHeader{}, nil, err
	}
	if h.kind == frameSeal {
		return frameHeader{}, &scanEnd{file: r.seg.path, offset: offset, sealed: true}, nil
	}
	if (h.kind == frameCheckpoint) != (offset == segmentHeaderBytes) || h.kind > frameSeal {
		return frameHeader{}, nil, corrupt(r.seg.path, offset, "frame of kind %d", h.kind)
	}
	if int64(h.length) > r.seg.filled-offset-frameHeaderBytes {
		return frameHeader{}, &scanEnd{file: r.seg.path, offset: offset, torn: true}, nil
	}
	if r.records, err = r.read(offset+frameHeaderBytes, h.length); err != nil {
		return frameHeader{}, nil, err
	}
	if len(r.records) < h.length || !checkRecords(r.records, r.seg.seed, h.recordsCRC) {
		return frameHeader{}, &scanEnd{file: r.seg.path, offset: offset, torn: true}, nil
	}
	return h, nil, nil
}

// checkSequence verifies that the frame at offset follows the one before it, in this
// segment or the segment before.
func (r *replayer) checkSequence(sequence uint64, offset int64) error {
	first := offset == segmentHeaderBytes
	switch {
	case sequence == r.log.sequence || first && r.oldest:
		return nil
	case first:
		return corrupt(r.before.file, r.before.offset, "ends before frame %d, %s begins with frame %d",
			r.log.sequence, r.seg.path, sequence)
	default:
		return corrupt(r.seg.path, offset, "frame %d, want frame %d", sequence, r.log.sequence)
	}
}

// applyFrame applies the records of the frame at offset.
func (r *replayer) applyFrame(h frameHeader, offset int64) error {
	if h.kind == frameCheckpoint {
		return r.applyCheckpoint(offset)
	}
	for at := 0; at < len(r.records); {
		rec, end := recordAt(r.records, at)
		where := offset + frameHeaderBytes + int64(at)
		loc := location{seg: r.seg, offset: uint32(where), size: uint32(end - at)}
		if err := r.log.Group(rec.group).applyLocked(rec, loc); err != nil {
			return corrupt(r.seg.path, where, "record of group %d: %v", rec.group, err)
		}
		at = end
	}
	return nil
}

// applyCheckpoint takes the state from the checkpoint of the oldest segment and
// compares it with that of every other one.
func (r *replayer) applyCheckpoint(offset int64) error {
	seen := make(map[uint32]bool)
	for at := 0; at < len(r.records); {
		rec, end := recordAt(r.records, at)
		at = end
		image, err := decodeState(rec.body)
		if err == nil && rec.kind != recordState {
			err = fmt.Errorf("%w: kind %d in a checkpoint", errSequence, rec.kind)
		}
		g := r.log.Group(rec.group)
		if err == nil && r.oldest {
			err = g.restore(image)
		}
		if err == nil && !g.image().equal(image) {
			err = fmt.Errorf("%w: the checkpoint differs", errSequence)
		}
		if err != nil {
			return corrupt(r.seg.path, offset, "state of group %d: %v", rec.group, err)
		}
		seen[rec.group] = true
	}
	for _, g := range r.log.allGroups() {
		if !seen[g.id] && !g.image().empty() {
			return corrupt(r.seg.path, offset, "group %d is not in the checkpoint", g.id)
		}
	}
	return nil
}

// read returns n bytes at offset, fewer at the end of the file. They are valid until
// the next read.
func (r *replayer) read(offset int64, n int) ([]byte, error) {
	if skip := offset - r.windowAt; skip < 0 || skip+int64(n) > int64(len(r.window)) {
		want := max(n, int(min(readAhead, r.seg.filled-offset)))
		r.window = slices.Grow(r.window[:0], want)[:want]
		got, err := r.seg.file.ReadAt(r.window, offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read %s: %w", r.seg.path, err)
		}
		r.window, r.windowAt = r.window[:got], offset
	}
	b := r.window[offset-r.windowAt:]
	return b[:min(n, len(b))], nil
}

// checkNothingAfter searches for a frame behind the end of the log. A frame is
// written only after all before it were synced; so if there is one, what seems to
// be the end is damage to durable data, not a torn write.
func (s *segment) checkNothingAfter(end int64) error {
	chunk := max(0, min(readAhead, s.filled-end))
	buf := make([]byte, chunk+frameHeaderBytes)
	for base := end + 1; base < s.filled; base += chunk {
		n, err := s.file.ReadAt(buf, base)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", s.path, err)
		}
		if at := s.findFrame(buf[:n], base); at >= 0 {
			return corrupt(s.path, end, "damaged frame before the valid one at offset %d", at)
		}
	}
	return nil
}

// findFrame returns the offset of the first valid frame header in b, which was read
// at base, or -1.
func (s *segment) findFrame(b []byte, base int64) int64 {
	for at := 0; ; at++ {
		next := bytes.Index(b[at:], []byte(frameMagic))
		if next < 0 || at+next+frameHeaderBytes > len(b) {
			return -1
		}
		at += next
		if _, ok := parseFrameHeader(b[at:at+frameHeaderBytes], s.seed, base+int64(at)); ok {
			return base + int64(at)
		}
	}
}
