package protocol

import (
	"math"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// reader reads the values of one frame, leniently where the protocol is lenient.
// The first fault is kept in err with its path; the faulty value is passed over
// and reading goes on, so that what else the frame says (such as its correlation
// id) is still found. Structure is never a surprise after Guard; without it the
// reader still neither panics nor loops.
type reader struct {
	b   []byte
	err error
	// odd says that Guard saw extension values or keys that are not text.
	odd bool
	// The latest map name and node id: operations of one batch share theirs.
	mapName, nodeID string
}

// fault keeps err unless there was one before.
func (r *reader) fault(err error) {
	if r.err == nil {
		r.err = err
	}
}

// reject faults the next value and passes over it.
func (r *reader) reject(err error) {
	r.fault(err)
	r.skip()
}

func (r *reader) skip() { r.skipAll(1) }

// skipAll passes over the next n values.
func (r *reader) skipAll(n int) {
	rest, err := skip(r.b, n)
	if err != nil {
		r.fault(err)
	}
	r.b = rest // nil after a fault of structure, which ends all loops
}

func (r *reader) isNil() bool { return len(r.b) > 0 && r.b[0] == mnil }

// text reads a str without copying it.
func (r *reader) text() []byte {
	v, rest, err := msgp.ReadStringZC(r.b)
	if err != nil {
		r.reject(ErrType)
		return nil
	}
	r.b = rest
	if !utf8.Valid(v) {
		r.fault(ErrText)
	}
	return v
}

func (r *reader) str() string { return string(r.text()) }

// shared reads a str that often equals the previous one and then costs nothing.
func (r *reader) shared(last *string) string {
	v := r.text()
	if string(v) != *last {
		*last = string(v)
	}
	return *last
}

func (r *reader) bool() bool {
	v, rest, err := msgp.ReadBoolBytes(r.b)
	if err != nil {
		r.reject(ErrType)
		return false
	}
	r.b = rest
	return v
}

// whole reads a number from 0 to limit: any integer format, or a float without a
// fraction, which is how clients write integers beyond 32 bits.
func (r *reader) whole(limit int64) int64 {
	switch msgp.NextType(r.b) {
	case msgp.IntType, msgp.UintType:
		v, rest, err := msgp.ReadInt64Bytes(r.b)
		if err != nil || v < 0 || v > limit {
			r.reject(ErrRange)
			return 0
		}
		r.b = rest
		return v
	case msgp.Float64Type, msgp.Float32Type:
		v, rest, err := readFloat(r.b)
		if err != nil || !(v >= 0 && v <= float64(limit)) || v != math.Trunc(v) {
			r.reject(ErrRange)
			return 0
		}
		r.b = rest
		return int64(v)
	default:
		r.reject(ErrType)
		return 0
	}
}

func (r *reader) millis() int64 { return r.whole(MaxSafeInteger) }

// number reads any integer or float as a float.
func (r *reader) number() float64 {
	var (
		v    float64
		rest []byte
		err  error
	)
	switch msgp.NextType(r.b) {
	case msgp.IntType:
		var i int64
		i, rest, err = msgp.ReadInt64Bytes(r.b)
		v = float64(i)
	case msgp.UintType:
		var u uint64
		u, rest, err = msgp.ReadUint64Bytes(r.b)
		v = float64(u)
	case msgp.Float32Type, msgp.Float64Type:
		v, rest, err = readFloat(r.b)
	default:
		err = ErrType
	}
	if err != nil {
		r.reject(ErrType)
		return 0
	}
	r.b = rest
	return v
}

// numberRaw reads any integer or float as it stands.
func (r *reader) numberRaw() msgp.Raw {
	switch msgp.NextType(r.b) {
	case msgp.IntType, msgp.UintType, msgp.Float32Type, msgp.Float64Type:
		return r.raw()
	default:
		r.reject(ErrType)
		return nil
	}
}

// raw reads any value as it stands. It aliases the frame, or is a copy if the
// value had to be made canonical.
func (r *reader) raw() msgp.Raw {
	start := r.b
	r.skip()
	v := start[: len(start)-len(r.b) : len(start)-len(r.b)]
	if !r.odd {
		return msgp.Raw(v)
	}
	if s, err := Guard(v); err != nil || !s.HasExt && !s.HasOddKey {
		return msgp.Raw(v)
	}
	out, _, err := appendCanonical(make([]byte, 0, len(v)), v)
	if err != nil {
		r.fault(err)
	}
	if len(out) == 1 && out[0] == mnil {
		return nil // as if it had been nil in the first place
	}
	return msgp.Raw(out)
}

// level reads a write concern by its wire name.
func (r *reader) level() WriteConcern {
	v := r.text()
	for i, name := range levelNames {
		if string(v) == name {
			return WriteConcern(i)
		}
	}
	r.fault(ErrValue)
	return LevelDefault
}

// strings reads an array of str.
func (r *reader) strings() []string {
	a := r.array()
	list := make([]string, 0, a.left)
	for a.next() {
		list = append(list, r.str())
	}
	return list
}
