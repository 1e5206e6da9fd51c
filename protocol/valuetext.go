package protocol

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// AppendValueText appends the text by which clients hash a value of an
// observed-remove map: nil, booleans and numbers as their text, text as it is, and
// lists and maps as compact JSON in which maps of every depth keep only the keys
// that the outermost value has, in the order of their UTF-16 units. A bin counts as
// the map from index to byte that clients make of it, an extension as nil. Integers
// beyond MaxSafeInteger are rounded as clients round them. raw must be empty, which
// counts as nil, or one guarded value; what cannot be read counts as nil. Beside the
// order of maps, it takes time and memory in proportion to the text; see ValueTextWork.
func AppendValueText(dst []byte, raw msgp.Raw) []byte {
	b := []byte(raw)
	if len(b) == 0 {
		return append(dst, "null"...)
	}
	w := valueText{out: dst, raw: b}
	switch t := msgp.NextType(b); t {
	case msgp.StrType:
		text, _, err := msgp.ReadStringZC(b)
		if err != nil {
			return append(dst, "null"...)
		}
		return append(dst, text...)
	case msgp.ArrayType, msgp.MapType:
		var err error
		if w.spans, err = spansOf(b); err != nil {
			return append(dst, "null"...)
		}
		if t == msgp.MapType {
			w.top()
			return w.out
		}
		n, _, _ := msgp.ReadArrayHeaderBytes(b) // measured above
		w.indexes = int(n)
	case msgp.BinType:
		data, _, _ := msgp.ReadBytesZC(b) // guarded before
		w.indexes = len(data)
	default:
		if v, ok := readNumber(b); ok {
			return appendFloat(dst, v)
		}
	}
	w.value(place{})
	return w.out
}

// valueText writes the JSON form of one value.
type valueText struct {
	out []byte
	// raw is the value, spans its containers in their order.
	raw   []byte
	spans []span
	// Maps inside the value show the keys, or of a list or bin, indexes below a number.
	keys    map[string]struct{}
	indexes int
}

// span is what a list or map takes: the offset behind it, and how many containers it and
// everything in it are.
type span struct{ end, count int32 }

// place is where a value begins: its offset, and the number of containers before it.
type place struct{ at, containers int }

// member is one entry of a map that is written.
type member struct {
	key   string
	value place
}

// spansOf measures the containers of the value at the start of b, so that what is passed
// over is passed over at once, however deep in the value.
func spansOf(b []byte) ([]span, error) {
	// open are the containers with elements to come, left how many.
	type container struct{ place, left int }
	var open []container
	var spans []span
	for at := 0; ; {
		f, size, elements := formScalar, int64(quickSize(b, at)), int64(0)
		if size == 0 {
			var err error
			if f, size, elements, err = measure(b[at:]); err != nil {
				return nil, err
			}
		}
		at += int(size)
		if f == formArray || f == formMap {
			spans = append(spans, span{end: int32(at), count: 1})
		}
		if elements > 0 {
			open = append(open, container{len(spans) - 1, int(elements)})
			continue
		}
		for len(open) > 0 {
			last := &open[len(open)-1]
			if last.left--; last.left > 0 {
				break
			}
			spans[last.place] = span{end: int32(at), count: int32(len(spans) - last.place)}
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			return spans, nil
		}
	}
}

// behind is the place behind the value at p.
func (w *valueText) behind(p place) place {
	if n := quickSize(w.raw, p.at); n != 0 {
		return place{p.at + n, p.containers}
	}
	f, size, _, _ := measure(w.raw[p.at:]) // measured before
	if f == formArray || f == formMap {
		s := w.spans[p.containers]
		return place{int(s.end), p.containers + int(s.count)}
	}
	return place{p.at + int(size), p.containers}
}

// value writes the value at p.
func (w *valueText) value(p place) {
	b := w.raw[p.at:]
	if small := b[0]; small <= 0x7f {
		w.out = strconv.AppendUint(w.out, uint64(small), 10)
		return
	}
	switch msgp.NextType(b) {
	case msgp.StrType:
		text, _, _ := msgp.ReadStringZC(b) // guarded before
		w.text(string(text))
	case msgp.BoolType:
		v, _, _ := msgp.ReadBoolBytes(b) // guarded before
		w.out = strconv.AppendBool(w.out, v)
	case msgp.ArrayType:
		w.list(p)
	case msgp.MapType:
		w.write(w.members(p, false))
	case msgp.BinType:
		w.binary(b)
	default:
		if v, ok := readNumber(b); ok && !math.IsNaN(v) && !math.IsInf(v, 0) {
			w.out = appendFloat(w.out, v)
			return
		}
		w.out = append(w.out, "null"...)
	}
}

func (w *valueText) list(p place) {
	n, rest, _ := msgp.ReadArrayHeaderBytes(w.raw[p.at:]) // guarded before
	p = place{len(w.raw) - len(rest), p.containers + 1}
	w.out = append(w.out, '[')
	for i := range n {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.value(p)
		p = w.behind(p)
	}
	w.out = append(w.out, ']')
}

// top writes the outermost value, a map.
func (w *valueText) top() {
	list := w.members(place{}, true)
	if len(w.spans) > 1 || w.hasBin(list) {
		w.keys = make(map[string]struct{}, len(list))
		for i := range list {
			w.keys[list[i].key] = struct{}{}
		}
	}
	w.write(list)
}

// hasBin reports whether one of the members is a bin.
func (w *valueText) hasBin(list []member) bool {
	return slices.ContainsFunc(list, func(m member) bool { return msgp.NextType(w.raw[m.value.at:]) == msgp.BinType })
}

// members lists the entries of the map at p, or those with keys that show, in the order of
// the keys; of equal keys the last one. A key that cannot be read ends the map.
func (w *valueText) members(p place, all bool) (list []member) {
	n, rest, _ := msgp.ReadMapHeaderBytes(w.raw[p.at:]) // guarded before
	p = place{len(w.raw) - len(rest), p.containers + 1}
	for range n {
		key, rest, err := keyText(w.raw[p.at:])
		if err != nil {
			break
		}
		p.at = len(w.raw) - len(rest)
		if all || w.shows(key) {
			list = append(list, member{key, p})
		}
		p = w.behind(p)
	}
	slices.SortFunc(list, func(a, b member) int {
		return cmp.Or(CompareText(a.key, b.key), b.value.at-a.value.at)
	})
	return slices.CompactFunc(list, func(a, b member) bool { return a.key == b.key })
}

// shows reports whether maps inside the value show a key.
func (w *valueText) shows(key string) bool {
	if w.keys != nil {
		_, ok := w.keys[key]
		return ok
	}
	const digits = 9
	if len(key) == 0 || len(key) > digits || key[0] == '0' && len(key) > 1 {
		return false
	}
	index := 0
	for _, c := range []byte(key) {
		if c < '0' || c > '9' {
			return false
		}
		index = 10*index + int(c-'0')
	}
	return index < w.indexes
}

// write writes the entries of a map.
func (w *valueText) write(list []member) {
	w.out = append(w.out, '{')
	for i, m := range list {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.text(m.key)
		w.out = append(w.out, ':')
		w.value(m.value)
	}
	w.out = append(w.out, '}')
}

// binary writes the bin at the start of b as a map from index to byte.
func (w *valueText) binary(b []byte) {
	data, _, _ := msgp.ReadBytesZC(b) // guarded before
	w.out = append(w.out, '{')
	first := true
	var scratch [20]byte
	for i, n := 0, 0; n < len(data); i, n = indexAfter(i, len(data)), n+1 {
		key := strconv.AppendInt(scratch[:0], int64(i), 10)
		if w.keys == nil {
			if i >= w.indexes {
				continue
			}
		} else if _, ok := w.keys[string(key)]; !ok {
			continue
		}
		if !first {
			w.out = append(w.out, ',')
		}
		first = false
		w.out = append(append(append(w.out, '"'), key...), '"', ':')
		w.out = strconv.AppendInt(w.out, int64(data[i]), 10)
	}
	w.out = append(w.out, '}')
}

// indexAfter is the index below n that follows i in the order of their texts.
func indexAfter(i, n int) int {
	if i == 0 {
		return 1
	}
	if 10*i < n {
		return 10 * i
	}
	if i+1 >= n {
		i /= 10
	}
	for i++; i%10 == 0; {
		i /= 10
	}
	return i
}

// shortEscapes are the ASCII characters with an escape of their own in JSON.
var shortEscapes = [utf8.RuneSelf]byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r', '"': '"', '\\': '\\'}

// text writes s in quotes, with nothing escaped but what JSON demands.
func (w *valueText) text(s string) {
	const hex = "0123456789abcdef"
	w.out = append(w.out, '"')
	plain := 0 // where what is written as it is begins
	for i, r := range s {
		if r >= 0x20 && r != utf8.RuneError && (r >= utf8.RuneSelf || shortEscapes[r] == 0) {
			continue
		}
		w.out = append(w.out, s[plain:i]...)
		plain = i + 1
		switch {
		case r == utf8.RuneError:
			w.out = utf8.AppendRune(w.out, r)
			if strings.HasPrefix(s[i:], string(utf8.RuneError)) { // not a byte that is no text
				plain = i + utf8.RuneLen(r)
			}
		case shortEscapes[r] != 0:
			w.out = append(w.out, '\\', shortEscapes[r])
		default:
			w.out = append(w.out, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		}
	}
	w.out = append(append(w.out, s[plain:]...), '"')
}

// appendFloat appends the text of floatText.
func appendFloat(dst []byte, v float64) []byte {
	if math.Abs(v) < 1e15 && v == math.Trunc(v) {
		return strconv.AppendInt(dst, int64(v), 10)
	}
	return append(dst, floatText(v)...)
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
