package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/storage"
)

// Snapshot streams the state of a group as the store holds it: the state at Mark.
// It reads one view of the store, which Close releases; an open view keeps space
// from being reused. It is for one goroutine, and must be closed before the store.
type Snapshot struct {
	mark storage.Mark
	size int64

	frames frames
	// rest is what is left of the current frame.
	rest []byte
}

var _ io.ReadCloser = (*Snapshot)(nil)

// OpenSnapshot opens the flushed state for streaming; Checkpoint moves it forward
// first. It reads the whole state once, to know its size and to check it against
// the mark: storage.ErrCorrupt means that it must not be sent.
func (m *Machine) OpenSnapshot() (*Snapshot, error) {
	s, err := m.openSnapshot()
	if err != nil {
		return nil, fmt.Errorf("open snapshot: %w", m.noticed(err))
	}
	return s, nil
}

func (m *Machine) openSnapshot() (*Snapshot, error) {
	m.mu.RLock()
	err := m.err
	m.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	reader, err := m.store.NewReader()
	if err != nil {
		return nil, err
	}
	s := &Snapshot{frames: frames{reader: reader, group: m.group}}
	if err := s.measure(); err != nil {
		return nil, errors.Join(err, reader.Close())
	}
	return s, nil
}

// measure reads everything once, and rewinds.
func (s *Snapshot) measure() error {
	reader, group := s.frames.reader, s.frames.group
	mark, err := reader.Mark(group)
	if err != nil {
		return err
	}
	s.mark, s.frames.mark = mark, mark
	for {
		frame, err := s.frames.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		s.size += int64(len(frame))
	}
	if err := s.frames.complete(); err != nil {
		return err
	}
	s.frames = frames{reader: reader, group: group, mark: mark}
	return nil
}

// Mark is the state that the snapshot contains.
func (s *Snapshot) Mark() storage.Mark { return s.mark }

// Size is the exact number of bytes that Read yields in total.
func (s *Snapshot) Size() int64 { return s.size }

// Read implements io.Reader.
func (s *Snapshot) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		frame, err := s.frames.next()
		if err != nil {
			return 0, err
		}
		s.rest = frame
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close releases the view of the store. Calling it again does nothing.
func (s *Snapshot) Close() error {
	reader := s.frames.reader
	if reader == nil {
		return nil
	}
	s.frames.reader = nil
	s.rest = nil
	return reader.Close()
}

// frames makes the bytes of a snapshot, frame by frame.
type frames struct {
	reader storage.Reader
	group  uint32
	mark   storage.Mark

	stage stage
	// section and from are where the next frame of items begins.
	section storage.Section
	from    string
	count   uint64
	digest  uint64
	buf     []byte
}

// stage is what the next frame is.
type stage int

const (
	stageHeader stage = iota
	stageItems
	stageTrailer
	stageEnd
)

// next returns the next piece, valid until the following call, and io.EOF behind
// the last one.
func (f *frames) next() ([]byte, error) {
	if f.reader == nil {
		return nil, fmt.Errorf("read snapshot: %w", ErrClosed)
	}
	for f.stage == stageItems {
		if sections[f.section].derived {
			f.skipSection()
			continue
		}
		frame, err := f.items()
		if err != nil || frame != nil {
			return frame, err
		}
		f.skipSection()
	}
	switch f.stage {
	case stageHeader:
		f.stage, f.section = stageItems, 1
		return f.header(), nil
	case stageTrailer:
		f.stage = stageEnd
		return f.trailer(), nil
	default:
		return nil, io.EOF
	}
}

// skipSection goes on with the section behind the present one.
func (f *frames) skipSection() {
	if f.section++; int(f.section) == len(sections) {
		f.stage = stageTrailer
	}
	f.from = ""
}

func (f *frames) header() []byte {
	b := beginFrame(nil, frameHeader)
	b = binary.AppendUvarint(b, uint64(f.group))
	b = codec.AppendBytes(b, storage.AppendMark(nil, f.mark))
	return append([]byte(snapshotMagic), endFrame(b)...)
}

func (f *frames) trailer() []byte {
	b := beginFrame(nil, frameTrailer)
	b = binary.AppendUvarint(b, f.count)
	return endFrame(binary.LittleEndian.AppendUint64(b, f.digest))
}

// items returns the next frame of the section, nil when there are no more items.
func (f *frames) items() ([]byte, error) {
	b := beginFrame(f.buf[:0], frameItems)
	empty := len(b)
	last := ""
	err := f.reader.Scan(f.group, f.section, "", f.from, func(key string, value []byte) bool {
		b = append(b, byte(f.section))
		b = codec.AppendText(b, key)
		b = codec.AppendBytes(b, value)
		f.count++
		f.digest += storage.ItemHash(storage.Key{Section: f.section, Bytes: key}, value)
		last = key
		return len(b) < frameTarget
	})
	f.buf = b
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.section, err)
	}
	if len(b) == empty {
		return nil, nil
	}
	// The least key above last.
	f.from = last + "\x00"
	f.buf = endFrame(b)
	return f.buf, nil
}
