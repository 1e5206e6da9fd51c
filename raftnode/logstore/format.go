package logstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The layout of a segment file; DESIGN.md describes it byte by byte. All integers
// of fixed width are little endian.
const (
	segmentMagic  = "QRSEGLOG"
	formatVersion = 1

	segmentHeaderBytes = 32
	frameHeaderBytes   = 32
	recordHeaderBytes  = 16
)

// frameMagic starts every frame. Recovery searches for it behind a damaged frame.
const frameMagic = "QRF\xf7"

// frameKind says what a frame is for. The numbers are on disk: never reused.
type frameKind uint8

const (
	// frameCheckpoint is the first frame of a segment: the state of all groups.
	frameCheckpoint frameKind = 1
	// frameBatch holds the records that one write made durable.
	frameBatch frameKind = 2
	// frameSeal is empty and marks the end of the log while the writer is idle. The
	// next frame overwrites it.
	frameSeal frameKind = 3
)

// frameHeader is the decoded header of a frame.
type frameHeader struct {
	kind       frameKind
	sequence   uint64
	length     int
	recordsCRC uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// segmentSeed starts the checksums of everything in a segment, so that bytes left
// over from the file's earlier life as another segment never pass as its own.
func segmentSeed(number uint64) uint32 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], number)
	return crc32.Update(0, castagnoli, b[:])
}

// appendSegmentHeader appends the header of segment number.
func appendSegmentHeader(b []byte, number uint64) []byte {
	start := len(b)
	b = append(b, segmentMagic...)
	b = binary.LittleEndian.AppendUint32(b, formatVersion)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, number)
	b = binary.LittleEndian.AppendUint32(b, 0)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// checkSegmentHeader verifies the header of segment number.
func checkSegmentHeader(b []byte, number uint64) error {
	if string(b[:8]) != segmentMagic {
		return fmt.Errorf("%w: no segment header", ErrCorrupt)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != formatVersion {
		return fmt.Errorf("%w: %d", ErrVersion, v)
	}
	if binary.LittleEndian.Uint32(b[28:]) != crc32.Checksum(b[:28], castagnoli) {
		return fmt.Errorf("%w: segment header checksum", ErrCorrupt)
	}
	if n := binary.LittleEndian.Uint64(b[16:]); n != number {
		return fmt.Errorf("%w: header of segment %d", ErrCorrupt, n)
	}
	return nil
}

// finishFrame fills in the header of the frame b, which is to be written at offset,
// and the checksums of its records.
func (s *segment) finishFrame(b []byte, kind frameKind, sequence uint64, offset int64) {
	copy(b, frameMagic)
	binary.LittleEndian.PutUint32(b[4:], uint32(kind))
	binary.LittleEndian.PutUint64(b[8:], sequence)
	binary.LittleEndian.PutUint32(b[16:], uint32(len(b)-frameHeaderBytes))
	binary.LittleEndian.PutUint32(b[20:], sumRecords(b[frameHeaderBytes:], s.seed))
	binary.LittleEndian.PutUint32(b[24:], 0)
	binary.LittleEndian.PutUint32(b[28:], sumFrameHeader(b, s.seed, offset))
}

// sumFrameHeader covers the place of the frame too: a header that was copied along
// with other bytes, inside an entry for instance, is not valid where it lies.
func sumFrameHeader(b []byte, seed uint32, offset int64) uint32 {
	return crc32.Update(seed^uint32(offset), castagnoli, b[:28])
}

// parseFrameHeader decodes the frame header in b, which was read at offset.
func parseFrameHeader(b []byte, seed uint32, offset int64) (frameHeader, bool) {
	if string(b[:4]) != frameMagic || binary.LittleEndian.Uint32(b[28:]) != sumFrameHeader(b, seed, offset) {
		return frameHeader{}, false
	}
	return frameHeader{
		kind:       frameKind(binary.LittleEndian.Uint32(b[4:])),
		sequence:   binary.LittleEndian.Uint64(b[8:]),
		length:     int(binary.LittleEndian.Uint32(b[16:])),
		recordsCRC: binary.LittleEndian.Uint32(b[20:]),
	}, true
}

// sumRecords writes the checksum of each record in b and returns the checksum over
// all record headers, which binds the records to their frame.
func sumRecords(b []byte, seed uint32) uint32 {
	sum := seed
	for at := 0; at < len(b); {
		end := at + recordHeaderBytes + recordLength(b[at:])
		binary.LittleEndian.PutUint32(b[at+4:], sumRecord(b[at:end], seed))
		sum = crc32.Update(sum, castagnoli, b[at:at+recordHeaderBytes])
		at = end
	}
	return sum
}

// checkRecords reports whether b holds exactly the intact records of a frame.
func checkRecords(b []byte, seed, want uint32) bool {
	sum := seed
	for at := 0; at < len(b); {
		if len(b)-at < recordHeaderBytes || recordLength(b[at:]) > len(b)-at-recordHeaderBytes {
			return false
		}
		end := at + recordHeaderBytes + recordLength(b[at:])
		if !recordIntact(b[at:end], seed) {
			return false
		}
		sum = crc32.Update(sum, castagnoli, b[at:at+recordHeaderBytes])
		at = end
	}
	return sum == want
}

// sumRecord covers a whole record but for the checksum itself.
func sumRecord(b []byte, seed uint32) uint32 {
	return crc32.Update(crc32.Update(seed, castagnoli, b[:4]), castagnoli, b[8:])
}

// recordIntact compares the checksum of the record b.
func recordIntact(b []byte, seed uint32) bool {
	return binary.LittleEndian.Uint32(b[4:]) == sumRecord(b, seed)
}

// recordLength is the length of the body of the record that starts in b.
func recordLength(b []byte) int { return int(binary.LittleEndian.Uint32(b)) }
