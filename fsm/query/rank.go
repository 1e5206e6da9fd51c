package query

import (
	"encoding/binary"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// kindOpaque is the kind of values that are not looked for because that takes more steps
// than a record may: nothing is known of them.
const kindOpaque = kindMissing + 1

// rankText is how many bytes of a text count for its rank.
const rankText = 256

// A rank is a value as bytes that have the order of rows sorted by it, ascending: its kind,
// then eight bytes of a number, one of a boolean, or a text with an end. Equal values have
// equal ranks, and so have texts that agree in their first rankText bytes and all values of
// the last three kinds. No rank begins with another one.

// AppendRank appends the rank of the value that a record has at a.
func (a Attribute) AppendRank(dst []byte, key string, value msgp.Raw) []byte {
	r := record{key: key, value: value}
	have, ok := r.get(a)
	if r.steps > maxSteps {
		return append(dst, kindOpaque)
	}
	v := sortValueOf(have, ok)
	return v.appendRank(dst)
}

func (v *sortValue) appendRank(dst []byte) []byte {
	dst = append(dst, v.kind)
	switch v.kind {
	case kindBool:
		return append(dst, byte(v.number))
	case kindNumber:
		return binary.BigEndian.AppendUint64(dst, rankOfNumber(v.number))
	case kindText:
		return append(appendRankText(dst, v.text), 0, 0)
	default:
		return dst
	}
}

// rankOfNumber has the order of compareNumbers.
func rankOfNumber(v float64) uint64 {
	if math.IsNaN(v) {
		return math.MaxUint64
	}
	bits := math.Float64bits(v + 0) // one zero
	if bits>>63 == 1 {
		return ^bits
	}
	return bits | 1<<63
}

// appendRankText appends what counts of a text, such that two zeros are in none.
func appendRankText(dst []byte, text string) []byte {
	for _, c := range []byte(text[:min(len(text), rankText)]) {
		if dst = append(dst, c); c == 0 {
			dst = append(dst, 1)
		}
	}
	return dst
}

// Equatable reports whether rank is of a value that others can equal, or of one of which
// nothing is known.
func Equatable(rank []byte) bool {
	switch rank[0] {
	case kindMissing, kindOther:
		return false
	case kindNumber:
		return binary.BigEndian.Uint64(rank[1:]) != math.MaxUint64
	default:
		return true
	}
}

// RankLen is the length of the rank that b begins with, zero if it begins with none.
func RankLen(b string) int {
	if b == "" {
		return 0
	}
	n := 1
	switch b[0] {
	case kindBool:
		n = 2
	case kindNumber:
		n = 9
	case kindText:
		for n = 3; n <= len(b); n++ {
			if b[n-2] != 0 {
				continue
			}
			if b[n-1] == 0 {
				return n
			}
			n++ // a zero of the text
		}
		return 0
	}
	if n > len(b) {
		return 0
	}
	return n
}

// Span is the texts from From on that are below To. That of ranks is also that of the
// entries which begin with them.
type Span struct{ From, To string }

// Spans of whole kinds.
var (
	// SpanMissing is the values that are missing, SpanOpaque those of which nothing is
	// known, and SpanValues all others.
	SpanMissing = Span{string([]byte{kindMissing}), string([]byte{kindMissing + 1})}
	SpanOpaque  = Span{string([]byte{kindOpaque}), string([]byte{kindOpaque + 1})}
	SpanValues  = Span{"", SpanMissing.From}
)

// Empty reports whether nothing is in s.
func (s Span) Empty() bool { return s.From >= s.To }

// And is what is in both spans.
func (s Span) And(o Span) Span { return Span{max(s.From, o.From), min(s.To, o.To)} }

// spanOf is everything that begins with prefix, which has a byte below 255.
func spanOf(prefix []byte) Span {
	end := append([]byte(nil), prefix...)
	for end[len(end)-1] == math.MaxUint8 {
		end = end[:len(end)-1]
	}
	end[len(end)-1]++
	return Span{string(prefix), string(end)}
}

// point is the span of a value that others can equal; false for other values.
func point(value msgp.Raw) (Span, bool) {
	v := sortValueOf(value, true)
	if v.kind > kindText || math.IsNaN(v.number) {
		return Span{}, false
	}
	return spanOf(v.appendRank(nil)), true
}

// SortedBy is the attribute whose ranks the rows lie in the order of, as far as these
// differ, and whether the order is descending, where what is missing comes last too; false
// if there is no such attribute.
func (q *Query) SortedBy() (attribute string, descending, ok bool) {
	if len(q.order) == 0 || !plain(q.order[0].name) {
		return "", false, false
	}
	return q.order[0].name, q.order[0].descending, true
}

// Bound is the span that the rank of p at SortedBy begins or ends.
func (q *Query) Bound(p *Place) Span { return spanOf(p.values[0].appendRank(nil)) }

// Passed reports whether every row lies behind cut whose rank at SortedBy is not before
// that of p.
func (q *Query) Passed(p, cut *Place) bool {
	a, b := p.values[0], cut.values[0]
	a.text, b.text = a.text[:min(len(a.text), rankText)], b.text[:min(len(b.text), rankText)]
	return q.order[0].compare(&a, &b) > 0
}
