package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
)

// windowSize is the number of outcomes that a group remembers. Replicas must agree
// on it: a change needs a new entry format.
const windowSize = 8192

// The first byte of every stored outcome: with valueFormat, the result has a Value.
const (
	outcomeFormat = 1
	valueFormat   = 2
)

// id is a dedup id as the window keeps it: a fixed number of bytes of its SHA-256,
// so that clients do not choose how much memory the window takes.
type id [16]byte

func outcomeID(dedup string) id {
	sum := sha256.Sum256([]byte(dedup))
	return id(sum[:len(id{})])
}

// window is the outcomes of the latest commands that carried a dedup id, in log
// order. Each is one item of the window's section under its ascending number; when
// there are more than windowSize, the oldest goes.
type window struct {
	section  storage.Section
	outcomes map[id]command.Result
	// order holds the ids, oldest first; the oldest has number first.
	order []id
	first uint64
}

func newWindow(section storage.Section) window {
	return window{section: section, outcomes: make(map[id]command.Result)}
}

// find returns the outcome of an earlier command with the same id, marked as
// changing nothing.
func (w *window) find(i id) (command.Result, bool) {
	res, ok := w.outcomes[i]
	res.Changed = false
	return res, ok && !ignoresRepeats
}

func (w *window) push(i id, res command.Result) {
	w.outcomes[i] = res
	w.order = append(w.order, i)
}

// pop forgets the oldest outcome and returns its number.
func (w *window) pop() uint64 {
	delete(w.outcomes, w.order[0])
	w.order = w.order[1:]
	w.first++
	return w.first - 1
}

// load takes a stored outcome; numbers must come in ascending order.
func (w *window) load(key string, value []byte) error {
	r := codec.NewReader(value)
	format := r.Byte()
	if format != outcomeFormat && format != valueFormat {
		r.Fail("format %d", format)
	}
	var i id
	copy(i[:], r.Take(len(i)))
	res := command.ReadResult(&r)
	if format == valueFormat {
		res.Value = command.ReadValue(&r)
	}
	if len(key) != 8 {
		r.Fail("key of %d bytes", len(key))
	}
	if err := r.End(); err != nil {
		return fmt.Errorf("decode outcome: %w: %w", storage.ErrCorrupt, err)
	}
	number := binary.BigEndian.Uint64([]byte(key))
	if len(w.order) == 0 {
		w.first = number
	}
	if number != w.first+uint64(len(w.order)) {
		return fmt.Errorf("outcome %d after %d: %w", number, w.first+uint64(len(w.order)), storage.ErrCorrupt)
	}
	w.push(i, res)
	return nil
}

// remember stores the outcome of the command with the dedup id and forgets the
// oldest one if the window is full.
func (r *run) remember(w *window, i id, res command.Result) error {
	next := &cell{key: w.key(w.first + uint64(len(w.order)))}
	value := command.AppendResult(append([]byte{outcomeFormat}, i[:]...), res)
	if res.Value != nil {
		value[0] = valueFormat
		value = codec.AppendBytes(value, res.Value)
	}
	r.set(next, value)
	w.push(i, res)
	if len(w.order) <= windowSize {
		return nil
	}
	oldest := w.key(w.pop())
	c, err := r.lookup(oldest.Section, []byte(oldest.Bytes))
	if err != nil {
		return err
	}
	r.set(c, nil)
	return nil
}

func (w *window) key(number uint64) storage.Key {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], number)
	return storage.Key{Section: w.section, Bytes: string(b[:])}
}
