package fsm

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
)

// counterFormat is the first byte of every stored counter.
const counterFormat = 1

// maxCounterBytes bounds a stored counter, and with it the frame that shows it.
const maxCounterBytes = 1 << 20

// serverCell is the writer of what CounterAdd adds in a life of the cluster, and in none
// when life is empty. Clients keep the greater total of every writer that they heard of.
// In a life that begins with less than the one before, as after a restore, totals of the
// same writer would come twice, and hide additions from them.
func serverCell(life string) string {
	if life == "" {
		return "$sys/adds"
	}
	return "$sys/adds/" + life
}

// reasonCounter refuses a counter that grows too large.
const reasonCounter = "counter has too many writers or is too large"

// reasonReused refuses an addition under the id of another one.
const reasonReused = "the id was used for another addition"

// applyCounterMerge raises the cells of a counter to those of a writer's state, by the
// merge of PN counters (M. Shapiro et al., "A comprehensive study of Convergent and
// Commutative Replicated Data Types", INRIA RR-7506, 2011, section 3.1.3).
func applyCounterMerge(r *run, c command.Raw) (command.Result, error) {
	m, err := command.DecodeCounterMerge(c)
	if err != nil {
		return command.Result{}, err
	}
	cell, cells, err := r.counter(m.Name)
	if err != nil {
		return command.Result{}, err
	}
	merged := mergeCells(cells, m.Cells, serverCell(m.Life))
	if cell.value != nil && slices.Equal(merged, cells) {
		return r.unchanged(), nil
	}
	return r.saveCounter(m.Name, cell, merged), nil
}

// mergeCells is the union of two lists of cells with the greater totals of each writer,
// except those of own, which stay.
func mergeCells(cells, others []command.Cell, own string) []command.Cell {
	merged := slices.Clone(cells)
	for _, other := range others {
		if other.Writer == own {
			continue
		}
		at, found := findCell(merged, other.Writer)
		if !found {
			merged = slices.Insert(merged, at, other)
			continue
		}
		merged[at].Positive = max(merged[at].Positive, other.Positive)
		merged[at].Negative = max(merged[at].Negative, other.Negative)
	}
	return merged
}

func findCell(cells []command.Cell, writer string) (at int, found bool) {
	return slices.BinarySearchFunc(cells, writer, func(c command.Cell, w string) int { return strings.Compare(c.Writer, w) })
}

// applyCounterAdd adds to the cell of the cluster's life in a counter, once per dedup id. Since
// the second version, another addition under the id is refused, and outcomes are kept by age.
func applyCounterAdd(r *run, c command.Raw) (command.Result, error) {
	m, err := command.DecodeCounterAdd(c)
	if err != nil {
		return command.Result{}, err
	}
	added, id := &r.machine.added, outcomeID(m.Dedup)
	o := outcome{}
	if c.Version >= command.ComparedAddVersion {
		o.content = outcomeID(fmt.Sprintf("%q %x", m.Name, math.Float64bits(m.Delta)))
		o.millis = r.entry.Stamp.Millis
	}
	if res, repeated := added.find(id); repeated {
		if o.content != (outcome{}).content && added.differs(id, o.content) {
			return r.refused(protocol.CodeStale, reasonReused), nil
		}
		return res, nil
	}
	cell, cells, err := r.counter(m.Name)
	if err != nil {
		return command.Result{}, err
	}
	cells = slices.Clone(cells)
	own := serverCell(m.Life)
	at, found := findCell(cells, own)
	if !found {
		cells = slices.Insert(cells, at, command.Cell{Writer: own})
	}
	cells[at].Positive += max(m.Delta, 0)
	cells[at].Negative += max(-m.Delta, 0)
	total := command.Total(cells)
	res := r.refused(protocol.CodeTooLarge, reasonCounter)
	if cells[at].Positive <= math.MaxFloat64 && cells[at].Negative <= math.MaxFloat64 && math.Abs(total) <= math.MaxFloat64 {
		res = r.saveCounter(m.Name, cell, cells)
	}
	if res.Code == 0 {
		res.Value = command.EncodeTotal(total)
	}
	o.Result = res
	return res, r.rememberOutcome(added, id, o)
}

// counter looks a counter up. The cells must not be modified.
func (r *run) counter(name string) (*cell, []command.Cell, error) {
	c, err := r.lookup(storage.SectionCounters, []byte(name))
	if err != nil {
		return nil, nil, err
	}
	cells, err := decodeCounter(c.value)
	return c, cells, err
}

// saveCounter stores a counter that changed, unless it is too large now.
func (r *run) saveCounter(name string, c *cell, cells []command.Cell) command.Result {
	value := command.AppendCells([]byte{counterFormat}, cells)
	if len(name) > storage.MaxKeyBytes || len(value) > maxCounterBytes {
		return r.refused(protocol.CodeTooLarge, reasonCounter)
	}
	r.set(c, value)
	r.notice(Change{Section: storage.SectionCounters, Key: name})
	return r.changed()
}

// decodeCounter decodes a stored counter; without one, it has no cells.
func decodeCounter(value []byte) ([]command.Cell, error) {
	if value == nil {
		return nil, nil
	}
	r := codec.NewReader(value)
	if format := r.Byte(); format != counterFormat {
		r.Fail("format %d", format)
	}
	cells := command.ReadCells(&r)
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("decode counter: %w: %w", storage.ErrCorrupt, err)
	}
	return cells, nil
}

// loadCounter is the row of counters in sections.
func loadCounter(_ *resident, _ string, value []byte) error {
	_, err := decodeCounter(value)
	return err
}

// Counter returns the cells of a counter in the order of their writers, as of the last
// applied entry, and that entry's index; none if there is no such counter. Errors as in
// Get.
func (m *Machine) Counter(name string) (cells []command.Cell, index uint64, err error) {
	err = m.look(func(l *look) error {
		index = m.mark.Index
		value, err := l.get(storage.SectionCounters, []byte(name))
		if err == nil {
			cells, err = decodeCounter(value)
		}
		return err
	})
	return cells, index, err
}

// applyRead changes nothing, and tells how far the tokens of locks have come.
func applyRead(r *run, c command.Raw) (command.Result, error) {
	res := r.unchanged()
	if c.Version >= command.TellingReadVersion {
		res.Value = command.EncodeGreatestToken(r.machine.locks.Fence())
	}
	return res, command.CheckRead(c)
}
