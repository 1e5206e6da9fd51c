package protocol

import (
	"math"
	"slices"
	"strconv"

	"github.com/tinylib/msgp/msgp"
)

// AppendValueText appends the text by which clients hash a value of an
// observed-remove map: nil, booleans and numbers as their text, text as it is, and
// lists and maps as compact JSON in which maps of every depth keep only the keys
// that the outermost value has, in the order of their UTF-16 units. A bin counts as
// the map from index to byte that clients make of it, an extension as nil. Integers
// beyond MaxSafeInteger are rounded as clients round them. raw must be empty, which
// counts as nil, or one guarded value; what cannot be read counts as nil.
func AppendValueText(dst []byte, raw msgp.Raw) []byte {
	b := []byte(raw)
	if len(b) == 0 {
		return append(dst, "null"...)
	}
	switch msgp.NextType(b) {
	case msgp.StrType:
		text, _, err := msgp.ReadStringZC(b)
		if err != nil {
			return append(dst, "null"...)
		}
		return append(dst, text...)
	case msgp.ArrayType, msgp.MapType, msgp.BinType:
		w := valueText{out: dst, keys: topKeys(b)}
		w.value(b)
		return w.out
	default:
		if v, ok := readNumber(b); ok {
			return append(dst, floatText(v)...)
		}
		w := valueText{out: dst}
		w.value(b)
		return w.out
	}
}

// valueText writes the JSON form of one value.
type valueText struct {
	out []byte
	// keys are those of the outermost value with their place in the order.
	keys map[string]int
}

// member is one entry of a map that is written.
type member struct {
	rank  int
	key   string
	value []byte
}

// topKeys are the keys that maps inside the value at the start of b may show.
func topKeys(b []byte) map[string]int {
	var list []string
	switch msgp.NextType(b) {
	case msgp.MapType:
		eachMember(b, func(key string, _ []byte) { list = append(list, key) })
	case msgp.BinType:
		data, _, _ := msgp.ReadBytesZC(b) // guarded before
		list = indexes(len(data))
	default:
		n, _, _ := msgp.ReadArrayHeaderBytes(b) // guarded before
		list = indexes(int(n))
	}
	slices.SortFunc(list, CompareText)
	keys := make(map[string]int, len(list))
	for i, key := range slices.Compact(list) {
		keys[key] = i
	}
	return keys
}

func indexes(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return list
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

// value writes the value at the start of b.
func (w *valueText) value(b []byte) {
	switch msgp.NextType(b) {
	case msgp.StrType:
		text, _, _ := msgp.ReadStringZC(b) // guarded before
		w.text(string(text))
	case msgp.BoolType:
		v, _, _ := msgp.ReadBoolBytes(b) // guarded before
		w.out = strconv.AppendBool(w.out, v)
	case msgp.ArrayType:
		w.list(b)
	case msgp.MapType:
		var list []member
		eachMember(b, func(key string, value []byte) { list = w.keep(list, key, value) })
		w.members(list)
	case msgp.BinType:
		w.binary(b)
	default:
		if v, ok := readNumber(b); ok && !math.IsNaN(v) && !math.IsInf(v, 0) {
			w.out = append(w.out, floatText(v)...)
			return
		}
		w.out = append(w.out, "null"...)
	}
}

func (w *valueText) list(b []byte) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	w.out = append(w.out, '[')
	for i := range n {
		if err != nil {
			break
		}
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.value(b)
		b, err = skip(b, 1)
	}
	w.out = append(w.out, ']')
}

// binary writes a bin as a map from index to byte.
func (w *valueText) binary(b []byte) {
	data, _, _ := msgp.ReadBytesZC(b) // guarded before
	var list []member
	for i, v := range data {
		list = w.keep(list, strconv.Itoa(i), msgp.AppendInt(nil, int(v)))
	}
	w.members(list)
}

// keep adds an entry to list if its key may show.
func (w *valueText) keep(list []member, key string, value []byte) []member {
	rank, ok := w.keys[key]
	if !ok {
		return list
	}
	return append(list, member{rank, key, value})
}

// members writes the entries of a map in order; of equal keys the last one counts.
func (w *valueText) members(list []member) {
	slices.SortStableFunc(list, func(a, b member) int { return a.rank - b.rank })
	w.out = append(w.out, '{')
	first := true
	for i, m := range list {
		if i+1 < len(list) && list[i+1].rank == m.rank {
			continue
		}
		if !first {
			w.out = append(w.out, ',')
		}
		first = false
		w.text(m.key)
		w.out = append(w.out, ':')
		w.value(m.value)
	}
	w.out = append(w.out, '}')
}

// shortEscapes are the control characters with an escape of their own in JSON.
var shortEscapes = map[rune]byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r', '"': '"', '\\': '\\'}

// text writes s in quotes, with nothing escaped but what JSON demands.
func (w *valueText) text(s string) {
	const hex = "0123456789abcdef"
	w.out = append(w.out, '"')
	for _, r := range s {
		short, special := shortEscapes[r]
		switch {
		case special:
			w.out = append(w.out, '\\', short)
		case r < 0x20:
			w.out = append(w.out, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			w.out = append(w.out, string(r)...)
		}
	}
	w.out = append(w.out, '"')
}

// readNumber reads the number at the start of b as clients hold it.
func readNumber(b []byte) (float64, bool) {
	switch msgp.NextType(b) {
	case msgp.IntType:
		v, _, err := msgp.ReadInt64Bytes(b)
		return float64(v), err == nil
	case msgp.UintType:
		v, _, err := msgp.ReadUint64Bytes(b)
		return float64(v), err == nil
	case msgp.Float32Type, msgp.Float64Type:
		v, _, err := readFloat(b)
		return v, err == nil
	default:
		return 0, false
	}
}
