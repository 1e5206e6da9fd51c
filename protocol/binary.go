package protocol

import (
	"strconv"

	"github.com/tinylib/msgp/msgp"
)

// Binary is a byte string. Besides MsgPack bin it is read from an array of bytes
// and from a map of decimal index to byte, which is what the clients' serializer
// makes of byte arrays. Read from bin it aliases the frame.
type Binary []byte

func (v Binary) appendTo(dst []byte) []byte { return msgp.AppendBytes(dst, v) }

func (v *Binary) readFrom(r *reader) {
	switch msgp.NextType(r.b) {
	case msgp.BinType:
		b, rest, err := msgp.ReadBytesZC(r.b)
		if err != nil {
			r.reject(ErrTruncated)
			return
		}
		*v, r.b = b[:len(b):len(b)], rest
	case msgp.ArrayType:
		a := r.array()
		out := make([]byte, 0, a.left)
		for a.next() {
			out = append(out, byte(r.whole(255)))
		}
		*v = out
	case msgp.MapType:
		*v = readIndexed(r)
	default:
		r.reject(ErrType)
	}
}

// readIndexed reads the map form, in which each index below the number of entries
// occurs once.
func readIndexed(r *reader) []byte {
	n, rest, err := msgp.ReadMapHeaderBytes(r.b)
	if err != nil {
		r.reject(ErrType)
		return nil
	}
	out := make([]byte, r.declared(n, rest))
	seen := make([]bool, len(out))
	for range len(out) {
		text, rest, err := keyText(r.b)
		if err != nil {
			r.reject(ErrType)
			r.skip()
			continue
		}
		r.b = rest
		b := byte(r.whole(255))
		i, err := strconv.Atoi(text)
		if err != nil || i < 0 || i >= len(out) || seen[i] {
			r.fault(ErrValue)
			continue
		}
		out[i], seen[i] = b, true
	}
	return out
}
