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

// outcomeFormat is the first byte of every stored outcome.
const outcomeFormat = 1

// id is a dedup id as the window keeps it: a fixed number of bytes of its SHA-256,
// so that clients do not choose how much memory the window takes.
type id [16]byte

func outcomeID(dedup string) id {
	sum := sha256.Sum256([]byte(dedup))
	return id(sum[:len(id{})])
}

// window is the outcomes of the latest commands that carried a dedup id, in log
// order. Each is one item of the dedup section under its ascending number; when
// there are more than windowSize, the oldest goes.
type window struct {
	outcomes map[id]command.Result
	// order holds the ids, oldest first; the oldest has number first.
	order []id
	first uint64
}

func newWindow() window { return window{outcomes: make(map[id]command.Result)} }

// find returns the outcome of an earlier command with the same id, marked as
// changing nothing.
func (w *window) find(i id) (command.Result, bool) {
	res, ok := w.outcomes[i]
	res.Changed = false
	return res, ok
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
	if format := r.Byte(); format != outcomeFormat {
		r.Fail("format %d", format)
	}
	var i id
	copy(i[:], r.Take(len(i)))
	res := command.ReadResult(&r)
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
func (r *run) remember(i id, res command.Result) error {
	w := &r.machine.window
	next := &cell{key: outcomeKey(w.first + uint64(len(w.order)))}
	value := append([]byte{outcomeFormat}, i[:]...)
	r.set(next, command.AppendResult(value, res))
	w.push(i, res)
	if len(w.order) <= windowSize {
		return nil
	}
	oldest := outcomeKey(w.pop())
	c, err := r.lookup(oldest.Section, []byte(oldest.Bytes))
	if err != nil {
		return err
	}
	r.set(c, nil)
	return nil
}

func outcomeKey(number uint64) storage.Key {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], number)
	return storage.Key{Section: storage.SectionDedup, Bytes: string(b[:])}
}
