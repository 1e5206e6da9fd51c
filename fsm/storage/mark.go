package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/quorate/quorate/fsm/codec"
)

// markFormat is the first byte of an encoded mark.
const markFormat = 1

// AppendMark appends the encoding of m to dst: a format byte, varints, and the
// digest in eight bytes.
func AppendMark(dst []byte, m Mark) []byte {
	dst = append(dst, markFormat)
	dst = binary.AppendUvarint(dst, m.Index)
	dst = binary.AppendUvarint(dst, m.Term)
	dst = binary.AppendUvarint(dst, m.ConfigurationIndex)
	dst = codec.AppendBytes(dst, m.Configuration)
	dst = binary.LittleEndian.AppendUint64(dst, m.Digest)
	dst = binary.AppendVarint(dst, m.ClockMillis)
	return binary.AppendVarint(dst, m.ClockCounter)
}

// DecodeMark decodes what AppendMark wrote into memory of its own. Errors wrap
// ErrCorrupt, or ErrFormat for a mark of a newer build.
func DecodeMark(b []byte) (Mark, error) {
	r := codec.NewReader(b)
	if format := r.Byte(); format > markFormat {
		return Mark{}, fmt.Errorf("decode mark: %w: format %d", ErrFormat, format)
	} else if format == 0 {
		r.Fail("format 0")
	}
	m := Mark{Index: r.Uvarint(), Term: r.Uvarint(), ConfigurationIndex: r.Uvarint()}
	if c := r.Bytes(); len(c) > 0 {
		m.Configuration = append([]byte(nil), c...)
	}
	m.Digest = r.Uint64()
	m.ClockMillis = r.Varint()
	m.ClockCounter = r.Varint()
	if err := r.End(); err != nil {
		return Mark{}, fmt.Errorf("decode mark: %w: %w", ErrCorrupt, err)
	}
	return m, nil
}
