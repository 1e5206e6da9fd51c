// Package codec appends and reads the primitive fields of which log entries,
// stored values and snapshots consist: the varints of encoding/binary, and bytes
// and text with a length in front. It holds no formats: each package documents
// its own.
//
// A Reader keeps its first error, so that a decoder reads all its fields and
// checks once. Lengths and counts are held against the bytes that are really
// there before anything is allocated.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// ErrMalformed is wrapped by every error of a Reader: the bytes are not what the
// format says.
var ErrMalformed = errors.New("malformed encoding")

// AppendText appends s with its length in front.
func AppendText(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// AppendBytes appends b with its length in front.
func AppendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// Reader takes fields off the front of a byte slice. After the first failure
// every call returns a zero value and Err reports it. A Reader is for one
// goroutine.
type Reader struct {
	rest []byte
	err  error
}

// NewReader reads from b, which must not change while results alias it.
func NewReader(b []byte) Reader { return Reader{rest: b} }

// Err is the first failure, or nil.
func (r *Reader) Err() error { return r.err }

// Len is the number of bytes not yet read.
func (r *Reader) Len() int { return len(r.rest) }

// Rest takes everything that is left. The result aliases the input.
func (r *Reader) Rest() []byte {
	b := r.rest
	r.rest = nil
	return b
}

// End reports the first failure, or an error if bytes are left over.
func (r *Reader) End() error {
	if r.err == nil && len(r.rest) > 0 {
		r.Fail("%d bytes left over", len(r.rest))
	}
	return r.err
}

// Fail records a failure that the caller found in a field's value. Only the first
// one is kept.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
	r.rest = nil
}

// Byte takes one byte.
func (r *Reader) Byte() byte {
	b := r.Take(1)
	if b == nil {
		return 0
	}
	return b[0]
}

// Take takes n bytes, nil if fewer are left. The result aliases the input.
func (r *Reader) Take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.rest) {
		r.Fail("%d bytes wanted, %d left", n, len(r.rest))
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// Uint32 takes four bytes in little-endian order.
func (r *Reader) Uint32() uint32 {
	b := r.Take(4)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}

// Uint64 takes eight bytes in little-endian order.
func (r *Reader) Uint64() uint64 {
	b := r.Take(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// Uvarint takes an unsigned varint.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.Fail("bad varint")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// Varint takes a signed varint.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.Fail("bad varint")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// Count takes the number of elements that follow, each of at least minSize bytes,
// and fails if they cannot all be there.
func (r *Reader) Count(minSize int) int {
	n := r.Uvarint()
	if n > uint64(len(r.rest)/max(minSize, 1)) {
		r.Fail("%d elements announced in %d bytes", n, len(r.rest))
		return 0
	}
	return int(n)
}

// Bytes takes bytes with a length in front. The result aliases the input.
func (r *Reader) Bytes() []byte { return r.Take(r.Count(1)) }

// TextView takes text with a length in front. It aliases the input, which must never
// change as long as the text is used.
func (r *Reader) TextView() string { return View(r.Bytes()) }

// Text takes text with a length in front and copies it.
func (r *Reader) Text() string { return string(r.Bytes()) }

// View is b as text, without a copy. b must never change as long as the text is used.
func View(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
