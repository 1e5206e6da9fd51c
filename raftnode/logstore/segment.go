package logstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
)

const (
	segmentSuffix = ".wal"
	// tempSuffix marks files that are to become a segment. Their content is never
	// read; Open removes them.
	tempSuffix = ".tmp"
)

// segment is one open segment file.
type segment struct {
	number uint64
	seed   uint32
	path   string
	file   File
	// size is the end of the last durable frame. Written by the writer only.
	size atomic.Int64
	// filled is the length that the file had when it became this segment; writing
	// below it does not change the metadata of the file.
	filled int64
	// live is the number of bytes of records that the index of a group points to.
	live atomic.Int64
	// readers counts running reads; a segment is not freed while there are any. A
	// reader enters under the lock of its group, while its entry is live.
	readers atomic.Int32
}

func segmentName(number uint64) string {
	return fmt.Sprintf("%016x%s", number, segmentSuffix)
}

// parseSegmentName returns the number of a segment file; ok is false for files of
// other kinds.
func parseSegmentName(name string) (number uint64, ok bool, err error) {
	stem, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok {
		return 0, false, nil
	}
	number, err = strconv.ParseUint(stem, 16, 64)
	if err != nil || segmentName(number) != name {
		return 0, true, fmt.Errorf("%w: %s is no segment name", ErrCorrupt, name)
	}
	return number, true, nil
}

func newSegment(dir string, number uint64, file File, filled int64) *segment {
	return &segment{
		number: number,
		seed:   segmentSeed(number),
		path:   filepath.Join(dir, segmentName(number)),
		file:   file,
		filled: filled,
	}
}

// openSegment opens an existing segment file.
func openSegment(fs FS, dir string, number uint64) (*segment, error) {
	file, err := fs.Open(filepath.Join(dir, segmentName(number)))
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	size, err := file.Size()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("size of segment: %w", err), file.Close())
	}
	return newSegment(dir, number, file, size), nil
}

// readRecord reads the record at loc and verifies it. The caller holds the segment
// against being freed.
func (s *segment) readRecord(group uint32, loc location) (record, error) {
	b := make([]byte, loc.size)
	if _, err := s.file.ReadAt(b, int64(loc.offset)); err != nil {
		return record{}, fmt.Errorf("read %s: %w", s.path, err)
	}
	if recordLength(b) != len(b)-recordHeaderBytes || !recordIntact(b, s.seed) {
		return record{}, corrupt(s.path, int64(loc.offset), "record checksum")
	}
	r, _ := recordAt(b, 0)
	if r.group != group || (r.kind != recordEntry && r.kind != recordRewrite) {
		return record{}, corrupt(s.path, int64(loc.offset), "record of kind %d, group %d", r.kind, r.group)
	}
	return r, nil
}
