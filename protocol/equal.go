package protocol

import (
	"bytes"

	"github.com/tinylib/msgp/msgp"
)

// Equal reports whether two values are structurally equal, as clients compare them:
// numbers by value, NaN unequal to itself; lists element by element; maps by key,
// whatever the order, nil different from missing. Both must be guarded or empty, which
// counts as nil.
func Equal(a, b msgp.Raw) bool { return equal(orNil(a), orNil(b)) }

func orNil(raw msgp.Raw) []byte {
	if len(raw) == 0 {
		return []byte{mnil}
	}
	return raw
}

func equal(a, b []byte) bool {
	if x, ok := readNumber(a); ok {
		y, ok := readNumber(b)
		return ok && x == y
	}
	kind := msgp.NextType(a)
	if kind != msgp.NextType(b) {
		return false
	}
	switch kind {
	case msgp.StrType:
		x, _, errX := msgp.ReadStringZC(a)
		y, _, errY := msgp.ReadStringZC(b)
		return errX == nil && errY == nil && bytes.Equal(x, y)
	case msgp.BinType:
		x, _, errX := msgp.ReadBytesZC(a)
		y, _, errY := msgp.ReadBytesZC(b)
		return errX == nil && errY == nil && bytes.Equal(x, y)
	case msgp.ArrayType:
		return equalLists(a, b)
	case msgp.MapType:
		return equalMaps(a, b)
	default: // nil and booleans are one byte
		return a[0] == b[0]
	}
}

func equalLists(a, b []byte) bool {
	n, a, errA := msgp.ReadArrayHeaderBytes(a)
	m, b, errB := msgp.ReadArrayHeaderBytes(b)
	if errA != nil || errB != nil || n != m {
		return false
	}
	for range n {
		if !equal(a, b) {
			return false
		}
		if a, errA = skip(a, 1); errA != nil {
			return false
		}
		if b, errB = skip(b, 1); errB != nil {
			return false
		}
	}
	return true
}

func equalMaps(a, b []byte) bool {
	x, y := Fields(a), Fields(b)
	for key, value := range x {
		if other, ok := y[key]; !ok || !equal(value, other) {
			return false
		}
	}
	return len(x) == len(y)
}

// Fields returns the entries of a map by key, of equal keys the last one; nil for any
// other value. raw must be guarded or empty; the values alias it.
func Fields(raw msgp.Raw) map[string]msgp.Raw {
	if len(raw) == 0 || msgp.NextType(raw) != msgp.MapType {
		return nil
	}
	fields := map[string]msgp.Raw{}
	eachMember(raw, func(key string, value []byte) { fields[key] = value })
	return fields
}

// eachMember calls fn for the entries of the map at the start of b, up to one that
// cannot be read.
func eachMember(b []byte, fn func(key string, value []byte)) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	for range n {
		if err != nil {
			return
		}
		var key string
		if key, b, err = keyText(b); err != nil {
			return
		}
		value := b
		if b, err = skip(b, 1); err == nil {
			fn(key, value[:len(value)-len(b)])
		}
	}
}
