package command

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/protocol"
)

// entryFormat is the first byte of every entry. Format 0 is invalid.
const entryFormat = 1

// minRaw is the least number of bytes that one command takes in an entry.
const minRaw = 3

// AppendEntry appends the encoding of one log entry to dst and returns the
// extended slice. The bodies are copied.
func AppendEntry(dst []byte, stamp protocol.Timestamp, cmds []Raw) []byte {
	dst = append(dst, entryFormat)
	dst = binary.AppendVarint(dst, stamp.Millis)
	dst = binary.AppendVarint(dst, stamp.Counter)
	dst = codec.AppendText(dst, stamp.NodeID)
	dst = binary.AppendUvarint(dst, uint64(len(cmds)))
	for _, c := range cmds {
		dst = append(dst, byte(c.Kind), c.Version)
		dst = codec.AppendBytes(dst, c.Body)
	}
	return dst
}

// DecodeEntry decodes what AppendEntry wrote. The bodies alias b. The kinds are
// not judged, except 0. Errors wrap ErrMalformed or ErrFormat; the work and the
// memory are linear in len(b).
func DecodeEntry(b []byte) (Entry, error) {
	r := codec.NewReader(b)
	if format := r.Byte(); r.Err() == nil && format != entryFormat {
		return Entry{}, fmt.Errorf("decode entry: %w: format %d", unknownFormat(format), format)
	}
	e := Entry{Stamp: protocol.Timestamp{Millis: r.Varint(), Counter: r.Varint(), NodeID: r.Text()}}
	n := r.Count(minRaw)
	e.Commands = make([]Raw, 0, n)
	for range n {
		c := Raw{Kind: Kind(r.Byte()), Version: r.Byte(), Body: r.Bytes()}
		if c.Kind == 0 {
			r.Fail("command kind 0")
		}
		e.Commands = append(e.Commands, c)
	}
	if err := r.End(); err != nil {
		return Entry{}, malformed("decode entry", err)
	}
	return e, nil
}

// unknownFormat classifies a format byte that is not ours: zero never was one.
func unknownFormat(format byte) error {
	if format == 0 {
		return ErrMalformed
	}
	return ErrFormat
}

// malformed wraps a field error as ErrMalformed of the operation op.
func malformed(op string, err error) error {
	return fmt.Errorf("%s: %w", op, errors.Join(ErrMalformed, err))
}

// checkVersion refuses a body of a version above known, or of version 0.
func checkVersion(c Raw, known uint8) error {
	if c.Version == 0 {
		return fmt.Errorf("decode %s: %w: version 0", c.Kind, ErrMalformed)
	}
	if c.Version > known {
		return fmt.Errorf("decode %s: %w: version %d", c.Kind, ErrFormat, c.Version)
	}
	return nil
}
