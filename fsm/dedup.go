package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
)

// Bounds of what a group remembers: windowSize outcomes, and more while the oldest one is
// of an addition that came up to additionMillis ago by the stamps of the log, at most
// maxAdditions. Stamps run ahead of the clocks by up to a minute, so that is a minute of
// real time at least. Replicas must agree on the bounds: a change needs a new version of
// the commands.
const (
	windowSize     = 8192
	additionMillis = 120_000
	maxAdditions   = 65_536
)

// The first byte of every stored outcome: with valueFormat, the result has a Value, and
// with contentFormat content and stamp are behind it.
const (
	outcomeFormat = 1
	valueFormat   = 2
	contentFormat = 3
)

// id is a dedup id as the window keeps it: a fixed number of bytes of its SHA-256,
// so that clients do not choose how much memory the window takes.
type id [16]byte

func outcomeID(dedup string) id {
	sum := sha256.Sum256([]byte(dedup))
	if strings.HasPrefix(dedup, command.FarPrefix) {
		copy(sum[:], command.FarPrefix)
	}
	return id(sum[:len(id{})])
}

// far tells the ids of writes whose stamp was replaced; of 2^32 others, one looks like them.
func (i *id) far() bool { return string(i[:len(command.FarPrefix)]) == command.FarPrefix }

// outcome is what became of a command. content stands for what the command asked for, zero
// if that is not compared, and millis is its stamp, zero if it does not matter.
type outcome struct {
	command.Result
	content id
	millis  int64
}

// window is the outcomes of the latest commands that carried a dedup id, in log
// order. Each is one item of the window's section under its ascending number; when
// there are too many, the oldest goes.
type window struct {
	section  storage.Section
	outcomes map[id]outcome
	// order holds the ids, oldest first; the oldest has number first.
	order []id
	first uint64
	// far is how many ids are of writes whose stamp was replaced.
	far int
}

func newWindow(section storage.Section) window {
	return window{section: section, outcomes: make(map[id]outcome)}
}

// find returns the outcome of an earlier command with the same id, marked as
// changing nothing.
func (w *window) find(i id) (command.Result, bool) {
	o, ok := w.outcomes[i]
	o.Changed = false
	return o.Result, ok && !ignoresRepeats
}

// differs reports whether the earlier command with the id asked for something else.
func (w *window) differs(i, content id) bool {
	earlier := w.outcomes[i].content
	return earlier != id{} && earlier != content
}

// over reports whether the oldest outcome is to be forgotten.
func (w *window) over(now int64) bool {
	if len(w.order) <= windowSize {
		return false
	}
	oldest := w.outcomes[w.order[0]].millis
	return oldest == 0 || now-oldest > additionMillis || len(w.order) > maxAdditions
}

func (w *window) push(i id, o outcome) {
	w.outcomes[i] = o
	w.order = append(w.order, i)
	if i.far() {
		w.far++
	}
}

// pop forgets the oldest outcome and returns its number.
func (w *window) pop() uint64 {
	if w.order[0].far() {
		w.far--
	}
	delete(w.outcomes, w.order[0])
	w.order = w.order[1:]
	w.first++
	return w.first - 1
}

// load takes a stored outcome; numbers must come in ascending order.
func (w *window) load(key string, value []byte) error {
	r := codec.NewReader(value)
	format := r.Byte()
	if format < outcomeFormat || format > contentFormat {
		r.Fail("format %d", format)
	}
	var i id
	copy(i[:], r.Take(len(i)))
	o := outcome{Result: command.ReadResult(&r)}
	if format >= valueFormat {
		o.Value = command.ReadValue(&r)
	}
	if format == contentFormat {
		copy(o.content[:], r.Take(len(o.content)))
		o.millis = r.Varint()
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
	w.push(i, o)
	return nil
}

// remember stores the outcome of the command with the dedup id and forgets the
// oldest one if the window is full.
func (r *run) remember(w *window, i id, res command.Result) error {
	return r.rememberOutcome(w, i, outcome{Result: res})
}

// rememberOutcome is remember with content and stamp. It forgets up to two outcomes, so
// that a window which was larger shrinks without one command having all the work.
func (r *run) rememberOutcome(w *window, i id, o outcome) error {
	next := &cell{key: w.key(w.first + uint64(len(w.order)))}
	value := command.AppendResult(append([]byte{outcomeFormat}, i[:]...), o.Result)
	if o.Value != nil || o.content != (id{}) {
		value[0] = valueFormat
		value = codec.AppendBytes(value, o.Value)
	}
	if o.content != (id{}) {
		value[0] = contentFormat
		value = binary.AppendVarint(append(value, o.content[:]...), o.millis)
	}
	r.set(next, value)
	w.push(i, o)
	for n := 0; n < 2 && w.over(r.entry.Stamp.Millis); n++ {
		oldest := w.key(w.pop())
		c, err := r.lookup(oldest.Section, []byte(oldest.Bytes))
		if err != nil {
			return err
		}
		r.set(c, nil)
	}
	return nil
}

func (w *window) key(number uint64) storage.Key {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], number)
	return storage.Key{Section: w.section, Bytes: string(b[:])}
}
