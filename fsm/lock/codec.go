package lock

import (
	"encoding/binary"

	"github.com/quorate/quorate/fsm/codec"
)

// minRequest is the least number of bytes that an encoded request takes.
const minRequest = 4

// Append appends the encoding of a lock without its name: token, lease, holder, the
// number of waiters, waiters. A request is gateway, number, id, duration.
func Append(dst []byte, l *Lock) []byte {
	dst = binary.AppendUvarint(dst, l.Token)
	dst = binary.AppendUvarint(dst, l.Lease)
	dst = AppendRequest(dst, l.Holder)
	dst = binary.AppendUvarint(dst, uint64(len(l.Waiters)))
	for _, w := range l.Waiters {
		dst = AppendRequest(dst, w)
	}
	return dst
}

// Read takes what Append appended; failures stay in r.
func Read(r *codec.Reader, name string) *Lock {
	l := &Lock{Name: name, Token: r.Uvarint(), Lease: r.Uvarint(), Holder: ReadRequest(r)}
	for range r.Count(minRequest) {
		l.Waiters = append(l.Waiters, ReadRequest(r))
	}
	return l
}

// AppendRequest appends the encoding of a request.
func AppendRequest(dst []byte, req Request) []byte {
	dst = codec.AppendText(dst, req.Gateway)
	dst = binary.AppendUvarint(dst, req.Number)
	dst = binary.AppendUvarint(dst, req.ID)
	return binary.AppendVarint(dst, req.TTLMillis)
}

// ReadRequest takes what AppendRequest appended; failures stay in r.
func ReadRequest(r *codec.Reader) Request {
	return Request{Session: Session{Gateway: r.Text(), Number: r.Uvarint()}, ID: r.Uvarint(), TTLMillis: r.Varint()}
}

// AppendOutcome appends the encoding of an outcome.
func AppendOutcome(dst []byte, o Outcome) []byte {
	return binary.AppendUvarint(append(dst, byte(o.State)), o.Token)
}

// ReadOutcome takes what AppendOutcome appended; failures stay in r.
func ReadOutcome(r *codec.Reader) Outcome {
	o := Outcome{State: State(r.Byte()), Token: r.Uvarint()}
	if r.Err() == nil && (o.State < Granted || o.State > Full) {
		r.Fail("lock state %d", o.State)
	}
	return o
}

// Restore enters a lock that was stored, into a table that does not have it.
func (t *Table) Restore(l *Lock) {
	t.locks[l.Name] = l
	t.enter(l.Holder.Session, l.Name, 0)
	for _, w := range l.Waiters {
		t.enter(w.Session, l.Name, 0)
	}
	t.changes = Changes{}
}

// RestoreFence enters the stored greatest token.
func (t *Table) RestoreFence(fence uint64) { t.fence = fence }

// RestoreBeat enters when a gateway was last heard of.
func (t *Table) RestoreBeat(name string, beat uint64) {
	g := t.gateways[name]
	if g == nil {
		g = &gateway{sessions: map[uint64]map[string]struct{}{}}
		t.gateways[name] = g
	}
	g.beat = beat
}
