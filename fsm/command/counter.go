package command

import (
	"encoding/binary"
	"math"

	"github.com/quorate/quorate/fsm/codec"
)

// Bodies of version lifeVersion begin with the life of the cluster.
const (
	counterVersion = 1
	lifeVersion    = 2
)

// ComparedAddVersion is the version of KindCounterAdd since which a dedup id that comes
// again with another name or delta is refused.
const ComparedAddVersion = 2

// Cell is the share of one writer in a counter: the totals that it ever added and
// subtracted. They are finite and not negative.
type Cell struct {
	Writer             string
	Positive, Negative float64
}

// minCell is the least number of bytes that an encoded cell takes.
const minCell = 17

// CounterMerge raises the cells of a counter to those of a writer's state.
type CounterMerge struct {
	// Life is the life of the cluster in which the command was made, empty for none: the
	// state does not raise the cell that belongs to the additions of this life.
	Life string
	Name string
	// Cells are in the order of their writers, each once.
	Cells []Cell
}

// CounterAdd adds to a counter, once per dedup id; another addition under the id is refused.
// Its result holds the counter's total in Value.
type CounterAdd struct {
	// Life is as in CounterMerge: the addition goes to the cell of this life.
	Life string
	Name string
	// Delta is finite; a negative one subtracts.
	Delta float64
	Dedup string
}

// EncodeCounterMerge encodes m as a command of its own memory.
func EncodeCounterMerge(m CounterMerge) Raw {
	version, b := appendLife(m.Life)
	return Raw{Kind: KindCounterMerge, Version: version, Body: AppendCells(codec.AppendText(b, m.Name), m.Cells)}
}

// DecodeCounterMerge decodes what EncodeCounterMerge wrote, into memory of its own.
// Errors wrap ErrMalformed or ErrFormat.
func DecodeCounterMerge(c Raw) (CounterMerge, error) {
	if err := checkVersion(c, lifeVersion); err != nil {
		return CounterMerge{}, err
	}
	r := codec.NewReader(c.Body)
	m := CounterMerge{Life: readLife(&r, c.Version), Name: r.Text(), Cells: ReadCells(&r)}
	if err := r.End(); err != nil {
		return CounterMerge{}, malformed("decode counter merge", err)
	}
	return m, nil
}

// AppendCells appends the number of cells and the cells: the writer, and the two totals
// as bits in little-endian order.
func AppendCells(dst []byte, cells []Cell) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(cells)))
	for i := range cells {
		dst = codec.AppendText(dst, cells[i].Writer)
		dst = appendFloat(dst, cells[i].Positive)
		dst = appendFloat(dst, cells[i].Negative)
	}
	return dst
}

// ReadCells takes what AppendCells appended; failures stay in r: also cells that are out
// of order, and totals that are none.
func ReadCells(r *codec.Reader) []Cell {
	cells := make([]Cell, 0, r.Count(minCell))
	for i := range cap(cells) {
		c := Cell{Writer: r.Text(), Positive: readTotal(r), Negative: readTotal(r)}
		if i > 0 && c.Writer <= cells[i-1].Writer {
			r.Fail("cell of %q after %q", c.Writer, cells[i-1].Writer)
		}
		cells = append(cells, c)
	}
	return cells
}

func appendFloat(dst []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
}

// readTotal takes a total. There is one zero.
func readTotal(r *codec.Reader) float64 {
	f := math.Float64frombits(r.Uint64())
	if !(f >= 0 && f <= math.MaxFloat64) || math.Signbit(f) {
		r.Fail("total %x", math.Float64bits(f))
		return 0
	}
	return f
}

// EncodeCounterAdd encodes m as a command of its own memory.
func EncodeCounterAdd(m CounterAdd) Raw {
	b := codec.AppendText(nil, m.Life)
	b = codec.AppendText(codec.AppendText(b, m.Name), m.Dedup)
	return Raw{Kind: KindCounterAdd, Version: ComparedAddVersion, Body: appendFloat(b, m.Delta)}
}

// DecodeCounterAdd decodes what EncodeCounterAdd wrote; see DecodeCounterMerge.
func DecodeCounterAdd(c Raw) (CounterAdd, error) {
	if err := checkVersion(c, ComparedAddVersion); err != nil {
		return CounterAdd{}, err
	}
	r := codec.NewReader(c.Body)
	m := CounterAdd{}
	if c.Version >= lifeVersion {
		m.Life = r.Text()
	}
	m.Name, m.Dedup, m.Delta = r.Text(), r.Text(), math.Float64frombits(r.Uint64())
	if math.IsNaN(m.Delta) || math.IsInf(m.Delta, 0) {
		r.Fail("delta %x", math.Float64bits(m.Delta))
	}
	if err := r.End(); err != nil {
		return CounterAdd{}, malformed("decode counter add", err)
	}
	return m, nil
}

// appendLife begins a body, and says of which version it is.
func appendLife(life string) (version uint8, body []byte) {
	if life == "" {
		return counterVersion, nil
	}
	return lifeVersion, codec.AppendText(nil, life)
}

func readLife(r *codec.Reader, version uint8) string {
	if version < lifeVersion {
		return ""
	}
	life := r.Text()
	if life == "" {
		r.Fail("no life")
	}
	return life
}

// EncodeTotal encodes the Value of the result of KindCounterAdd.
func EncodeTotal(total float64) []byte { return appendFloat(nil, total) }

// DecodeTotal decodes it. Errors wrap ErrMalformed.
func DecodeTotal(value []byte) (float64, error) {
	r := codec.NewReader(value)
	total := math.Float64frombits(r.Uint64())
	if err := r.End(); err != nil {
		return 0, malformed("decode total", err)
	}
	return total, nil
}

// EncodeRead encodes a command that changes nothing: once it is applied, so is everything
// that was committed before it was proposed. The Value of its result is EncodeGreatestToken.
func EncodeRead() Raw { return Raw{Kind: KindRead, Version: TellingReadVersion} }

// TellingReadVersion is the version of KindRead since which its result has a Value.
const TellingReadVersion = 2

// CheckRead fails unless c is what EncodeRead wrote. Errors wrap ErrMalformed or
// ErrFormat.
func CheckRead(c Raw) error {
	if err := checkVersion(c, TellingReadVersion); err != nil {
		return err
	}
	r := codec.NewReader(c.Body)
	if err := r.End(); err != nil {
		return malformed("decode read", err)
	}
	return nil
}

// Total is the value of a counter: what was added less what was subtracted, summed in
// the order of the cells.
func Total(cells []Cell) float64 {
	total := 0.0
	for i := range cells {
		total += cells[i].Positive
		total -= cells[i].Negative
	}
	return total
}
