package query

import (
	"bytes"
	"math"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// valueSet is a set of values under the equality of queries.
type valueSet struct {
	scalars map[string]struct{}
	others  []msgp.Raw
}

func newValueSet(list msgp.Raw) *valueSet {
	s := &valueSet{scalars: map[string]struct{}{}}
	protocol.EachItem(list, func(value msgp.Raw) bool {
		if name, ok := scalarName(nil, value); ok {
			s.scalars[string(name)] = struct{}{}
		} else if !protocol.IsNil(value) {
			s.others = append(s.others, value)
		}
		return true
	})
	return s
}

func (s *valueSet) has(r *record, value msgp.Raw) bool {
	var room [64]byte
	if name, ok := scalarName(room[:0], value); ok {
		_, found := s.scalars[string(name)]
		return found
	}
	for _, other := range s.others {
		if equal(r, other, value) {
			return true
		}
	}
	return false
}

// scalarName appends a text that is the same for equal booleans, numbers and texts; other
// values, and what equals nothing, have none.
func scalarName(dst []byte, value msgp.Raw) ([]byte, bool) {
	if v, ok := protocol.Number(value); ok {
		if math.IsNaN(v) {
			return dst, false
		}
		return strconv.AppendUint(append(dst, 'n'), math.Float64bits(v+0), 16), true
	}
	if text, ok := protocol.Text(value); ok {
		return append(append(dst, 's'), text...), true
	}
	if v, ok := protocol.Bool(value); ok {
		return strconv.AppendBool(append(dst, 'b'), v), true
	}
	return dst, false
}

// fold maps a text to one that is the same for texts that differ in case only, by simple
// folding.
func fold(text []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r < utf8.RuneSelf {
			if 'A' <= r && r <= 'Z' {
				r += 'a' - 'A'
			}
			if r != 'k' && r != 's' { // the others fold among themselves
				return r
			}
		}
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, text)
}
