package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/storage"
)

// A snapshot is the magic, then frames: a header, items in key order, a trailer.
// A frame is the length of its payload in four bytes, the payload, and the
// payload's CRC-32C in four bytes, little-endian. The payload begins with its kind.
const (
	// snapshotMagic ends with the format version.
	snapshotMagic = "QUORSNP\x01"

	frameHeader  = 1 // group, mark
	frameItems   = 2 // section, key, value, repeated
	frameTrailer = 3 // number of items, digest

	// frameTarget is the size at which a frame of items is full. An item is never
	// split, so maxFrame holds the largest one.
	frameTarget = 64 << 10
	maxFrame    = frameTarget + storage.MaxKeyBytes + storage.MaxValueBytes + 64
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// beginFrame starts a frame in dst, which must be empty.
func beginFrame(dst []byte, kind byte) []byte {
	return append(dst, 0, 0, 0, 0, kind)
}

// endFrame completes the frame that beginFrame started in b.
func endFrame(b []byte) []byte {
	payload := b[4:]
	binary.LittleEndian.PutUint32(b, uint32(len(payload)))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
}

// readFrame reads one frame and returns a reader behind its kind. It allocates
// no more than what really arrives.
func readFrame(src io.Reader) (kind byte, payload codec.Reader, err error) {
	var length [4]byte
	if _, err := io.ReadFull(src, length[:]); err != nil {
		return 0, codec.Reader{}, fmt.Errorf("%w: frame length: %w", ErrSnapshot, err)
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > maxFrame {
		return 0, codec.Reader{}, fmt.Errorf("%w: frame of %d bytes", ErrSnapshot, n)
	}
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, src, int64(n)+4); err != nil {
		return 0, codec.Reader{}, fmt.Errorf("%w: frame of %d bytes: %w", ErrSnapshot, n, err)
	}
	body, sum := buf.Bytes()[:n], binary.LittleEndian.Uint32(buf.Bytes()[n:])
	if crc32.Checksum(body, castagnoli) != sum {
		return 0, codec.Reader{}, fmt.Errorf("%w: frame checksum", ErrSnapshot)
	}
	payload = codec.NewReader(body)
	return payload.Byte(), payload, nil
}
