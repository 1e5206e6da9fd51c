package query

import (
	"cmp"
	"errors"
	"math"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// column is one field that rows are sorted by.
type column struct {
	name       string
	descending bool
}

// The kinds of values in their order. What is missing comes last in both directions.
const (
	kindBool uint8 = iota
	kindNumber
	kindText
	kindOther
	kindMissing
)

// sortValue is what counts of a value where rows are sorted.
type sortValue struct {
	kind   uint8
	number float64 // also 0 or 1 for a boolean
	text   string
}

// Place is where a row lies in the result. Places of one Query are compared by Compare.
type Place struct {
	Key    string
	values []sortValue
}

// Place returns the place of a record, which aliases neither.
func (q *Query) Place(key string, value msgp.Raw) Place {
	p := Place{Key: key}
	if len(q.order) == 0 {
		return p
	}
	r := record{key: key, value: value}
	p.values = make([]sortValue, len(q.order))
	for i := range q.order {
		have, ok := r.column(q.order[i].name)
		p.values[i] = sortValueOf(have, ok)
	}
	return p
}

// column is a top-level field, or a pseudo attribute.
func (r *record) column(name string) (msgp.Raw, bool) {
	if name == keyAttribute || name == valueAttribute {
		return r.get([]string{name})
	}
	return r.field(name)
}

func sortValueOf(have msgp.Raw, ok bool) sortValue {
	if !ok || protocol.IsNil(have) {
		return sortValue{kind: kindMissing}
	}
	if v, ok := protocol.Number(have); ok {
		return sortValue{kind: kindNumber, number: v}
	}
	if text, ok := protocol.Text(have); ok {
		return sortValue{kind: kindText, text: string(text)}
	}
	if v, ok := protocol.Bool(have); ok {
		if v {
			return sortValue{kind: kindBool, number: 1}
		}
		return sortValue{kind: kindBool}
	}
	return sortValue{kind: kindOther}
}

// Size is about how many bytes the place takes.
func (p *Place) Size() int {
	size := 32 + len(p.Key) + 40*len(p.values)
	for i := range p.values {
		size += len(p.values[i].text)
	}
	return size
}

// Compare orders two places: by the sort fields, then by key. It is negative if a comes
// before b, and zero for the same key only.
func (q *Query) Compare(a, b *Place) int {
	for i := range q.order {
		if c := q.order[i].compare(&a.values[i], &b.values[i]); c != 0 {
			return c
		}
	}
	return strings.Compare(a.Key, b.Key)
}

func (c column) compare(a, b *sortValue) int {
	if a.kind == kindMissing || b.kind == kindMissing {
		return cmp.Compare(a.kind, b.kind)
	}
	order := cmp.Or(cmp.Compare(a.kind, b.kind), compareNumbers(a.number, b.number), strings.Compare(a.text, b.text))
	if c.descending {
		return -order
	}
	return order
}

// compareNumbers puts what is no number behind all others.
func compareNumbers(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return cmp.Compare(boolInt(math.IsNaN(a)), boolInt(math.IsNaN(b)))
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// errPlace is the error of a text that is no place of the query.
var errPlace = errors.New("no place in the result of this query")

// AppendPlace appends p in a form that ParsePlace reads.
func (q *Query) AppendPlace(dst []byte, p *Place) []byte {
	dst = msgp.AppendString(dst, p.Key)
	for i := range p.values {
		v := &p.values[i]
		dst = msgp.AppendUint8(dst, v.kind)
		switch v.kind {
		case kindText:
			dst = msgp.AppendString(dst, v.text)
		case kindNumber, kindBool:
			dst = msgp.AppendFloat64(dst, v.number)
		}
	}
	return dst
}

// ParsePlace reads what AppendPlace of a query of the same shape has written.
func (q *Query) ParsePlace(b []byte) (Place, error) {
	key, b, err := msgp.ReadStringBytes(b)
	p := Place{Key: key}
	for range q.order {
		var v sortValue
		if err == nil {
			v.kind, b, err = msgp.ReadUint8Bytes(b)
		}
		switch {
		case err != nil:
		case v.kind == kindText:
			v.text, b, err = msgp.ReadStringBytes(b)
		case v.kind == kindNumber || v.kind == kindBool:
			v.number, b, err = msgp.ReadFloat64Bytes(b)
		case v.kind > kindMissing:
			err = errPlace
		}
		p.values = append(p.values, v)
	}
	if err != nil || len(b) > 0 {
		return Place{}, errPlace
	}
	return p, nil
}
