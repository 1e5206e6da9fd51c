package protocol

import (
	"maps"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// Field returns the entry of a map with a text key, of equal keys the last one, and how
// many entries were passed over; false for any other value and for a map without it. raw
// must be guarded or empty; the result aliases it.
func Field(raw msgp.Raw, name string) (value msgp.Raw, steps int, ok bool) {
	if len(raw) == 0 || msgp.NextType(raw) != msgp.MapType {
		return nil, 1, false
	}
	n, b, err := msgp.ReadMapHeaderBytes(raw)
	for range n {
		if err != nil {
			return nil, int(n), false
		}
		var found bool
		if key, rest, keyErr := msgp.ReadStringZC(b); keyErr == nil {
			found, b = string(key) == name, rest
		} else if b, err = skip(b, 1); err != nil {
			return nil, int(n), false
		}
		start := b
		if b, err = skip(b, 1); err == nil && found {
			value, ok = msgp.Raw(start[:len(start)-len(b)]), true
		}
	}
	return value, int(n) + 1, ok
}

// EachField calls fn with the entries of a map whose keys are text, in their order, until
// it returns false. raw must be guarded or empty; what fn gets aliases it.
func EachField(raw msgp.Raw, fn func(name []byte, value msgp.Raw) bool) {
	if len(raw) == 0 || msgp.NextType(raw) != msgp.MapType {
		return
	}
	n, b, err := msgp.ReadMapHeaderBytes(raw)
	for range n {
		if err != nil {
			return
		}
		key, rest, keyErr := msgp.ReadStringZC(b)
		if keyErr != nil {
			b, err = skip(b, 2)
			continue
		}
		b = rest
		start := b
		if b, err = skip(b, 1); err == nil && !fn(key, msgp.Raw(start[:len(start)-len(b)])) {
			return
		}
	}
}

// EachItem calls fn with the elements of a list until it returns false, and reports
// whether raw is a list. raw must be guarded or empty; the elements alias it.
func EachItem(raw msgp.Raw, fn func(value msgp.Raw) bool) bool {
	if len(raw) == 0 || msgp.NextType(raw) != msgp.ArrayType {
		return false
	}
	n, b, err := msgp.ReadArrayHeaderBytes(raw)
	if err != nil {
		return false
	}
	for range n {
		start := b
		if b, err = skip(b, 1); err != nil || !fn(msgp.Raw(start[:len(start)-len(b)])) {
			break
		}
	}
	return true
}

// Number is a value as clients hold it, if it is a number. raw must be guarded or empty.
func Number(raw msgp.Raw) (v float64, ok bool) {
	if len(raw) == 0 {
		return 0, false
	}
	return readNumber(raw)
}

// Text is a text value; false for any other. raw must be guarded or empty, and is aliased.
func Text(raw msgp.Raw) (text []byte, ok bool) {
	if len(raw) == 0 || msgp.NextType(raw) != msgp.StrType {
		return nil, false
	}
	text, _, err := msgp.ReadStringZC(raw)
	return text, err == nil
}

// Bool is a boolean value; ok is false for any other. raw must be guarded or empty.
func Bool(raw msgp.Raw) (v, ok bool) {
	if len(raw) == 0 || msgp.NextType(raw) != msgp.BoolType {
		return false, false
	}
	v, _, err := msgp.ReadBoolBytes(raw)
	return v, err == nil
}

// IsNil reports whether a value is nil, which an empty one is too, or an extension, which
// counts as nil. raw must be guarded or empty.
func IsNil(raw msgp.Raw) bool {
	if len(raw) == 0 {
		return true
	}
	switch msgp.NextType(raw) {
	case msgp.NilType, msgp.ExtensionType, msgp.TimeType, msgp.Complex64Type, msgp.Complex128Type, msgp.InvalidType:
		return true
	default:
		return false
	}
}

// AppendSorted appends a value in a form that is equal for values that Equal calls equal:
// numbers as floats, the entries of maps in the order of their keys. raw must be guarded
// or empty.
func AppendSorted(dst []byte, raw msgp.Raw) []byte {
	if v, ok := Number(raw); ok {
		return msgp.AppendFloat64(dst, v+0) // of the two zeros the positive one
	}
	switch {
	case IsNil(raw):
		return msgp.AppendNil(dst)
	case msgp.NextType(raw) == msgp.ArrayType:
		n, _, _ := msgp.ReadArrayHeaderBytes(raw) // guarded before
		dst = msgp.AppendArrayHeader(dst, n)
		EachItem(raw, func(value msgp.Raw) bool { dst = AppendSorted(dst, value); return true })
		return dst
	case msgp.NextType(raw) == msgp.MapType:
		return appendSortedMap(dst, raw)
	default:
		if text, ok := Text(raw); ok {
			return msgp.AppendStringFromBytes(dst, text)
		}
		if data, _, err := msgp.ReadBytesZC(raw); err == nil {
			return msgp.AppendBytes(dst, data)
		}
		return append(dst, raw...)
	}
}

func appendSortedMap(dst []byte, raw msgp.Raw) []byte {
	fields := Fields(raw)
	dst = msgp.AppendMapHeader(dst, uint32(len(fields)))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		dst = msgp.AppendString(dst, name)
		dst = AppendSorted(dst, fields[name])
	}
	return dst
}
