package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Reader reads one backup front to back: NewReader, Next until io.EOF. That nothing is
// missing at the end is known only then.
type Reader struct {
	src    io.Reader
	size   int64
	hash   hash.Hash
	unzip  *zstd.Decoder
	header Header
	groups int
	// current is the group that is being read; nil between groups.
	current *contents
}

// NewReader begins to read a backup. Errors, here and later, wrap ErrDamaged or
// ErrFormat, or are those of src. Close follows.
func NewReader(src io.Reader) (*Reader, error) {
	unzip, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(chunkSize))
	if err != nil {
		return nil, fmt.Errorf("prepare decompression: %w", err)
	}
	r := &Reader{src: src, hash: sha256.New(), unzip: unzip}
	if err := r.begin(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close releases what the Reader holds; the source is the caller's.
func (r *Reader) Close() { r.unzip.Close() }

func (r *Reader) begin() error {
	var begin [len(magic)]byte
	if _, err := io.ReadFull(r.src, begin[:]); err != nil {
		return fmt.Errorf("%w: too short: %w", ErrFormat, err)
	}
	if string(begin[:]) != magic {
		return fmt.Errorf("%w: it begins with %q", ErrFormat, begin)
	}
	_, _ = r.hash.Write(begin[:]) // never fails
	r.size = int64(len(begin))
	kind, payload, err := r.record()
	if err != nil {
		return err
	}
	if kind != recordHeader {
		return damaged("record of kind %d in place of the header", kind)
	}
	return decode(payload, &r.header)
}

// Header says where the backup comes from.
func (r *Reader) Header() Header { return r.header }

// Next begins the next group, in ascending order from 0, whose snapshot contents is
// valid until the following call; what of it was not read is skipped. io.EOF means
// that the backup is complete and as it was written.
func (r *Reader) Next() (Part, io.Reader, error) {
	if r.current != nil {
		if _, err := io.Copy(io.Discard, r.current); err != nil {
			return Part{}, nil, err
		}
	}
	sum := hex.EncodeToString(r.hash.Sum(nil))
	kind, payload, err := r.record()
	if err != nil {
		return Part{}, nil, err
	}
	switch kind {
	case recordGroup:
		var g Part
		if err := decode(payload, &g); err != nil {
			return Part{}, nil, err
		}
		if int64(g.Group) != int64(r.groups) || g.Group > r.header.Groups {
			return Part{}, nil, damaged("group %d of %d comes as number %d", g.Group, r.header.Groups, r.groups)
		}
		r.groups++
		r.current = &contents{reader: r}
		return g, r.current, nil
	case recordFooter:
		return Part{}, nil, r.end(payload, sum)
	default:
		return Part{}, nil, damaged("record of kind %d between groups", kind)
	}
}

// end checks the footer; sum is the hash of everything before it.
func (r *Reader) end(payload []byte, sum string) error {
	var f footer
	if err := decode(payload, &f); err != nil {
		return err
	}
	switch {
	case f.Hash != sum:
		return damaged("hash is %s, not %s", sum, f.Hash)
	case f.Groups != r.groups || int64(r.groups) != int64(r.header.Groups)+1:
		return damaged("%d groups of %d", r.groups, int64(r.header.Groups)+1)
	}
	if n, err := io.ReadFull(r.src, make([]byte, 1)); n > 0 {
		return damaged("data behind the footer")
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("read backup: %w", err)
	}
	return io.EOF
}

// record reads the next record and checks it.
func (r *Reader) record() (kind byte, payload []byte, err error) {
	var head [5]byte
	if err := r.read(head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxRecord {
		return 0, nil, damaged("record of %d bytes", n)
	}
	body := make([]byte, n+4)
	if err := r.read(body); err != nil {
		return 0, nil, err
	}
	sum := crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, body[:n])
	if sum != binary.LittleEndian.Uint32(body[n:]) {
		return 0, nil, damaged("checksum of the record that ends at byte %d", r.size)
	}
	return head[0], body[:n], nil
}

func (r *Reader) read(b []byte) error {
	n, err := io.ReadFull(r.src, b)
	_, _ = r.hash.Write(b[:n])
	r.size += int64(n)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return damaged("it ends at byte %d", r.size)
	default:
		return fmt.Errorf("read backup: %w", err)
	}
}

// contents is the snapshot of one group.
type contents struct {
	reader *Reader
	bytes  int64
	// rest is what is left of the current chunk; buf is its memory.
	rest, buf []byte
	err       error
}

// Read implements io.Reader.
func (c *contents) Read(p []byte) (int, error) {
	for len(c.rest) == 0 && c.err == nil {
		c.err = c.next()
	}
	if len(c.rest) == 0 {
		return 0, c.err
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next reads the next chunk; io.EOF at the end of the group.
func (c *contents) next() error {
	kind, payload, err := c.reader.record()
	if err != nil {
		return err
	}
	switch kind {
	case recordChunk:
		if c.buf, err = c.reader.unzip.DecodeAll(payload, c.buf[:0]); err != nil {
			return damaged("chunk: %w", err)
		}
		c.rest = c.buf
		c.bytes += int64(len(c.buf))
		return nil
	case recordEnd:
		c.reader.current = nil
		var end groupEnd
		if err := decode(payload, &end); err != nil {
			return err
		}
		if end.Bytes != c.bytes {
			return damaged("snapshot of %d bytes, not %d", c.bytes, end.Bytes)
		}
		return io.EOF
	default:
		return damaged("record of kind %d within a group", kind)
	}
}
