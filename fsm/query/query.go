package query

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/protocol"
)

// NoLimit is the Limit of a query without one.
const NoLimit = -1

// Query is a compiled query.
type Query struct {
	filter node // nil admits every record
	order  []column
	limit  int
	cursor string
	fields map[string]struct{} // nil keeps all
	groups []string
	totals []total
	shape  [8]byte
	wants  Interest
	keys   []string
	// source is what AppendSource appends.
	source source
}

// source is what a query was compiled from.
type source struct{ object, filter msgp.Raw }

// Options are what takes part in a query beside its object.
type Options struct {
	// Fields is the projection; nil takes the one of the query object.
	Fields []string
	// Filter is a map of top-level fields to the values that they must equal, nil among
	// them. Anything else admits all.
	Filter msgp.Raw
}

// Compile checks a query object, which is guarded or empty, and prepares it. The result
// does not alias raw. Errors: ErrMalformed, ErrTooComplex, ErrUnsupported.
func Compile(raw msgp.Raw, o Options) (*Query, error) {
	raw = slices.Clone(raw)
	p := parser{query: &Query{limit: NoLimit}}
	if len(raw) > 0 && !protocol.IsNil(raw) && msgp.NextType(raw) != msgp.MapType {
		return nil, fmt.Errorf("%w: not a map", ErrMalformed)
	}
	if len(raw)+len(o.Filter) > maxBytes {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooComplex, maxBytes)
	}
	object := protocol.Fields(raw)
	if o.Fields == nil {
		p.fields(object["fields"])
	} else {
		p.project(o.Fields)
	}
	p.literal(slices.Clone(o.Filter))
	p.where(object["where"])
	p.predicate(object["predicate"])
	p.sort(object["sort"])
	p.limit(object["limit"])
	p.cursor(object["cursor"])
	p.groupBy(object["groupBy"])
	if len(p.query.groups) > 0 {
		p.aggregations(object["aggregations"])
	}
	if p.err != nil {
		return nil, p.err
	}
	q := p.query
	q.filter = both(p.conditions)
	q.wants, q.keys = interestOf(p.conditions)
	q.shape = q.shapeOf(object, o.Filter)
	q.source = source{raw, slices.Clone(o.Filter)}
	return q, nil
}

// AppendSource appends what FromSource needs to make the same query, but for its projection
// and what was set since it was compiled.
func (q *Query) AppendSource(dst []byte) []byte {
	return codec.AppendBytes(codec.AppendBytes(dst, q.source.object), q.source.filter)
}

// FromSource reads what AppendSource appended. Errors as of Compile, or codec.ErrMalformed.
func FromSource(b []byte) (*Query, error) {
	r := codec.NewReader(b)
	object, filter := r.Bytes(), r.Bytes()
	if err := r.End(); err != nil {
		return nil, err
	}
	return Compile(object, Options{Filter: filter})
}

// Records is the query for the records that q admits, in the order of their keys.
func (q *Query) Records() *Query {
	return &Query{filter: q.filter, limit: NoLimit, wants: q.wants, keys: q.keys}
}

// shapeOf tells queries apart whose rows lie in different orders, or are others.
func (q *Query) shapeOf(object map[string]msgp.Raw, filter msgp.Raw) (shape [8]byte) {
	var b []byte
	for _, name := range []string{"where", "predicate", "groupBy", "aggregations"} {
		b = protocol.AppendSorted(b, object[name])
	}
	for _, c := range q.order {
		b = msgp.AppendBool(msgp.AppendString(b, c.name), c.descending)
	}
	sum := sha256.Sum256(protocol.AppendSorted(b, filter))
	copy(shape[:], sum[:])
	return shape
}

// Limit is the number of rows that the query asks for, at most MaxRows, or NoLimit.
func (q *Query) Limit() int { return q.limit }

// SetLimit replaces the limit of the query object by one that is not negative.
func (q *Query) SetLimit(limit int64) { q.limit = int(min(limit, MaxRows)) }

// Cursor is the cursor that the query came with, empty without one.
func (q *Query) Cursor() string { return q.cursor }

// SetCursor replaces the cursor of the query object.
func (q *Query) SetCursor(cursor string) { q.cursor = cursor }

// Sorted reports whether rows lie in another order than that of their keys.
func (q *Query) Sorted() bool { return len(q.order) > 0 }

// Grouped reports whether the rows of the query are groups of records.
func (q *Query) Grouped() bool { return len(q.groups) > 0 }

// Shape is equal for queries with the same rows in the same order, whatever their limit
// and projection.
func (q *Query) Shape() [8]byte { return q.shape }

// Keys lists the only keys, in order, that rows can have, if the filter says so. It is not
// to be modified.
func (q *Query) Keys() (keys []string, only bool) { return q.keys, q.keys != nil }

// Match reports whether a record is in the result, window and cursor aside. The error is
// ErrTooCostly.
func (q *Query) Match(key string, value msgp.Raw) (bool, error) {
	if q.filter == nil {
		return true, nil
	}
	r := record{key: key, value: value}
	matched := q.filter.holds(&r)
	if r.steps > maxSteps {
		return false, ErrTooCostly
	}
	return matched, nil
}

// Project keeps the fields of a value that the query asks for. A value that is not a map
// passes unchanged. The result may alias value.
func (q *Query) Project(value msgp.Raw) msgp.Raw {
	if q.fields == nil || len(value) == 0 || msgp.NextType(value) != msgp.MapType {
		return value
	}
	kept := uint32(0)
	out := make([]byte, 3, 64) // a map header of 16 bits; a name is counted once at most
	protocol.EachField(value, func(name []byte, field msgp.Raw) bool {
		if _, wanted := q.fields[string(name)]; wanted {
			kept++
			out = append(msgp.AppendStringFromBytes(out, name), field...)
		}
		return true
	})
	if kept > math.MaxUint16 {
		return value
	}
	out[0] = 0xde
	binary.BigEndian.PutUint16(out[1:], uint16(kept))
	return out
}
