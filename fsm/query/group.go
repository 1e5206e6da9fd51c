package query

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// total is one aggregation of a field.
type total struct {
	fn, field string
}

// groupBytes is what a group takes beside its columns, and totalBytes one of its totals.
const groupBytes, totalBytes = 128, 96

// Groups gathers the records of a query that groups them. For one goroutine.
type Groups struct {
	query *Query
	byID  map[string]*group
	left  int // bytes
}

// group is the records with equal columns.
type group struct {
	columns []msgp.Raw
	count   int64
	sums    []sum // one for each total of the query
}

// sum is what has been seen of one field in a group.
type sum struct {
	n        int64 // numbers
	whole    int64
	rest     float64
	min, max number
}

// number is a number as it was written.
type number struct {
	v   float64
	raw msgp.Raw
}

// NewGroups returns an empty set of groups of q that takes up to maxBytes.
func (q *Query) NewGroups(maxBytes int) *Groups {
	return &Groups{query: q, byID: map[string]*group{}, left: maxBytes}
}

// Add counts a record that matches. The error is ErrTooManyGroups.
func (g *Groups) Add(key string, value msgp.Raw) error {
	r := record{key: key, value: value}
	var id []byte
	columns := make([]msgp.Raw, len(g.query.groups))
	for i, name := range g.query.groups {
		have, ok := r.field(name)
		if ok && !protocol.IsNil(have) {
			columns[i] = have
		}
		id = appendColumn(id, columns[i])
	}
	in := g.byID[string(id)]
	if in == nil {
		in = &group{columns: columns, sums: make([]sum, len(g.query.totals))}
		g.left -= groupBytes + 2*len(id) + totalBytes*len(in.sums)
		for i := range columns {
			columns[i] = append(msgp.Raw(nil), columns[i]...)
			g.left -= len(columns[i])
		}
		if g.left < 0 {
			return ErrTooManyGroups
		}
		g.byID[string(id)] = in
	}
	in.count++
	for i := range in.sums {
		if have, ok := r.field(g.query.totals[i].field); ok {
			in.sums[i].add(have)
		}
	}
	return nil
}

// appendColumn appends what tells apart the values of a column: also whole numbers from
// others.
func appendColumn(id []byte, value msgp.Raw) []byte {
	if protocol.IsNil(value) {
		return append(id, 'N')
	}
	switch msgp.NextType(value) {
	case msgp.BoolType:
		if v, _ := protocol.Bool(value); v {
			return append(id, "B1"...)
		}
		return append(id, "B0"...)
	case msgp.IntType:
		v, _, _ := msgp.ReadInt64Bytes(value) // guarded before
		return append(strconv.AppendInt(append(id, 'I'), v, 10), ';')
	case msgp.UintType:
		v, _, _ := msgp.ReadUint64Bytes(value) // guarded before
		return append(strconv.AppendUint(append(id, 'I'), v, 10), ';')
	case msgp.Float32Type, msgp.Float64Type:
		v, _ := protocol.Number(value)
		return append(strconv.AppendUint(append(id, 'F'), math.Float64bits(v), 10), ';')
	case msgp.StrType:
		text, _ := protocol.Text(value)
		id = append(strconv.AppendInt(append(id, 'S'), int64(len(text)), 10), ':')
		return append(id, text...)
	default:
		digest := sha256.Sum256(protocol.AppendSorted(nil, value))
		return append(append(id, 'O'), hex.EncodeToString(digest[:])...)
	}
}

// add counts a value if it is a number.
func (s *sum) add(value msgp.Raw) {
	v, ok := protocol.Number(value)
	if !ok {
		return
	}
	if s.n == 0 || compareNumbers(v, s.min.v) < 0 {
		s.min = number{v, append(msgp.Raw(nil), value...)}
	}
	if s.n == 0 || compareNumbers(v, s.max.v) > 0 {
		s.max = number{v, append(msgp.Raw(nil), value...)}
	}
	s.n++
	whole := int64(v)
	if v == math.Trunc(v) && math.Abs(v) <= protocol.MaxSafeInteger && !overflows(s.whole, whole) {
		s.whole += whole
		return
	}
	s.rest += v
}

func overflows(a, b int64) bool {
	sum := a + b
	return (sum > a) != (b > 0) && b != 0
}

func (s *sum) total() float64 { return float64(s.whole) + s.rest }

// Each calls fn with the groups as rows, in no order, until it returns false.
func (g *Groups) Each(fn func(key string, value msgp.Raw) bool) {
	for id, in := range g.byID {
		if !fn(id, in.row(g.query, id)) {
			return
		}
	}
}

// row is the group as a value.
func (in *group) row(q *Query, id string) msgp.Raw {
	b := msgp.AppendMapHeader(nil, uint32(2+len(q.groups)+len(q.totals)))
	b = msgp.AppendString(msgp.AppendString(b, "__key"), id)
	b = msgp.AppendInt64(msgp.AppendString(b, "__count"), in.count)
	for i, name := range q.groups {
		b = msgp.AppendString(b, name)
		if in.columns[i] == nil {
			b = msgp.AppendNil(b)
		}
		b = append(b, in.columns[i]...)
	}
	for i, t := range q.totals {
		b = msgp.AppendString(b, "__"+t.fn+"_"+t.field)
		b = in.sums[i].appendTotal(b, t.fn)
	}
	return b
}

func (s *sum) appendTotal(b []byte, fn string) []byte {
	total := s.total()
	switch {
	case fn == "sum" && total == math.Trunc(total) && math.Abs(total) <= protocol.MaxSafeInteger:
		return msgp.AppendInt64(b, int64(total))
	case fn == "sum":
		return msgp.AppendFloat64(b, total)
	case s.n == 0:
		return msgp.AppendNil(b)
	case fn == "avg":
		return msgp.AppendFloat64(b, total/float64(s.n))
	case fn == "min":
		return append(b, s.min.raw...)
	default:
		return append(b, s.max.raw...)
	}
}
