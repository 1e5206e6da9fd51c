package protocol

import (
	"maps"
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// CounterState is the state of a PN-counter: per node id what it ever added and
// ever subtracted, never negative. It is read under either spelling of its halves,
// "positive" and "negative" or "p" and "n", by cell the greater one if both come,
// and written under both.
type CounterState struct {
	Positive, Negative map[string]float64
}

func (s CounterState) appendTo(dst []byte) []byte {
	o := newObject(dst)
	for _, half := range []struct {
		name  string
		cells map[string]float64
	}{{"p", s.Positive}, {"n", s.Negative}, {"positive", s.Positive}, {"negative", s.Negative}} {
		o.key(half.name)
		o.buf = appendCells(o.buf, half.cells)
	}
	return o.buf
}

func (s *CounterState) readFrom(r *reader) {
	s.Positive, s.Negative = map[string]float64{}, map[string]float64{}
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "p", "positive":
			readCells(r, s.Positive)
		case "n", "negative":
			readCells(r, s.Negative)
		default:
			r.skip()
		}
	}
	f.end()
}

func readCells(r *reader, cells map[string]float64) {
	f := r.fields()
	for f.next() {
		v := r.number()
		if !(v >= 0 && v <= math.MaxFloat64) {
			r.fault(ErrRange)
		} else if key := string(f.name); v > cells[key] {
			cells[key] = v
		}
	}
	f.end()
}

func appendCells(dst []byte, cells map[string]float64) []byte {
	dst = msgp.AppendMapHeader(dst, uint32(len(cells)))
	for _, key := range slices.Sorted(maps.Keys(cells)) {
		dst = msgp.AppendString(dst, key)
		dst = msgp.AppendFloat(dst, cells[key])
	}
	return dst
}

// CounterRequest is COUNTER_REQUEST: ask for a counter and follow it. Once and Unfollow are
// extensions of this server.
type CounterRequest struct {
	Name string `wire:"name"`
	// Once asks for the state alone: whether the connection follows the counter stays as it is.
	Once bool `wire:"once,optional"`
	// Unfollow ends the following, and has no answer.
	Unfollow bool `wire:"unfollow,optional"`
}

// Kind implements Message.
func (*CounterRequest) Kind() Kind { return KindCounterRequest }

// Correlation is the counter's name.
func (m *CounterRequest) Correlation() string { return m.Name }

// CounterSync is COUNTER_SYNC: a client's state, to be merged.
type CounterSync struct {
	Name  string       `wire:"name"`
	State CounterState `wire:"state"`
	// Add is to be added to the counter, once per RequestID; the answer is then a
	// CounterResponse with the id. Both are extensions of this server.
	Add       *float64 `wire:"add,optional"`
	RequestID string   `wire:"requestId,optional"`
	// Once has an addition leave it as it is whether the connection follows the counter. It is
	// an extension, too.
	Once bool `wire:"once,optional"`
}

// Kind implements Message.
func (*CounterSync) Kind() Kind { return KindCounterSync }

// Correlation is the counter's name.
func (m *CounterSync) Correlation() string { return m.Name }

// CounterResponse is COUNTER_RESPONSE: the state asked for.
type CounterResponse struct {
	Name  string       `wire:"name"`
	State CounterState `wire:"state"`
	// RequestID is that of the CounterSync which added, and Value the counter's total
	// right after it. Both are extensions of this server.
	RequestID string   `wire:"requestId,optional"`
	Value     *float64 `wire:"value,optional"`
}

// Kind implements Message.
func (*CounterResponse) Kind() Kind { return KindCounterResponse }

// CounterUpdate is COUNTER_UPDATE: the merged state after a change.
type CounterUpdate struct {
	Name  string       `wire:"name"`
	State CounterState `wire:"state"`
}

// Kind implements Message.
func (*CounterUpdate) Kind() Kind { return KindCounterUpdate }
