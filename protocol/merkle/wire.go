package merkle

import (
	"encoding/binary"
	"errors"
)

// ErrEncoding is wrapped for bytes that Append did not write.
var ErrEncoding = errors.New("malformed leaves of a hash tree")

// Append appends the buckets that are not empty, as nodes send them to each other: the
// distance from the one before, the sum, and the number of keys.
func (l *Leaves) Append(dst []byte) []byte {
	last := -1
	for i := range l.sums {
		if l.sums[i] == 0 && l.keys[i] == 0 {
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(i-last))
		dst = binary.LittleEndian.AppendUint32(dst, l.sums[i])
		dst = binary.AppendUvarint(dst, uint64(l.keys[i]))
		last = i
	}
	return dst
}

// AddEncoded adds what Append wrote. After an error l is of no use.
func (l *Leaves) AddEncoded(b []byte) error {
	place := -1
	for len(b) > 0 {
		step, n := binary.Uvarint(b)
		if n <= 0 || step == 0 || step > uint64(Buckets-1-place) || len(b) < n+4 {
			return ErrEncoding
		}
		place += int(step)
		l.sums[place] += binary.LittleEndian.Uint32(b[n:])
		b = b[n+4:]
		keys, n := binary.Uvarint(b)
		if n <= 0 || keys > 1<<32-1 {
			return ErrEncoding
		}
		l.keys[place] += uint32(keys)
		b = b[n:]
	}
	return nil
}
