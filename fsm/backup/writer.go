package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Writer writes one backup: NewWriter, a WriteGroup for each group, Close. After an
// error what was written is no backup.
type Writer struct {
	dst    io.Writer
	hash   hash.Hash
	zip    *zstd.Encoder
	groups int
	chunk  []byte
	record []byte
}

// NewWriter begins a backup. It writes to dst and leaves closing it to the caller.
func NewWriter(dst io.Writer, h Header) (*Writer, error) {
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("prepare compression: %w", err)
	}
	w := &Writer{dst: dst, hash: sha256.New(), zip: zip, chunk: make([]byte, chunkSize)}
	if err := w.write([]byte(magic)); err != nil {
		return nil, err
	}
	return w, w.writeJSON(recordHeader, h)
}

// WriteGroup writes the snapshot of a group, from src to its end.
func (w *Writer) WriteGroup(g Part, src io.Reader) error {
	if err := w.writeJSON(recordGroup, g); err != nil {
		return err
	}
	var end groupEnd
	var zipped []byte
	for {
		n, err := io.ReadFull(src, w.chunk)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return fmt.Errorf("read snapshot of group %d: %w", g.Group, err)
		}
		if n > 0 {
			end.Bytes += int64(n)
			zipped = w.zip.EncodeAll(w.chunk[:n], zipped[:0])
			if err := w.writeRecord(recordChunk, zipped); err != nil {
				return err
			}
		}
		if last {
			break
		}
	}
	w.groups++
	return w.writeJSON(recordEnd, end)
}

// Close writes the footer, without which the file is no backup.
func (w *Writer) Close() error {
	return w.writeJSON(recordFooter, footer{Groups: w.groups, Hash: hex.EncodeToString(w.hash.Sum(nil))})
}

func (w *Writer) writeJSON(kind byte, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	return w.writeRecord(kind, payload)
}

func (w *Writer) writeRecord(kind byte, payload []byte) error {
	b := append(w.record[:0], kind)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	w.record = b
	return w.write(b)
}

func (w *Writer) write(b []byte) error {
	// Writing to a hash cannot fail.
	_, _ = w.hash.Write(b)
	if _, err := w.dst.Write(b); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return nil
}
