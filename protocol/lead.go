package protocol

import "encoding/binary"

// form classifies a MsgPack value by its first byte.
type form uint8

const (
	formReserved form = iota
	formNil
	formScalar // boolean or number
	formText
	formBinary
	formExt
	formArray
	formMap
)

// lead describes the values that start with one byte: head bytes come before the
// payload or the elements; their number is fixed, or in a field of width bytes
// right after the first byte.
type lead struct {
	form  form
	head  uint8
	width uint8
	fixed uint8
}

// leads describes every first byte, as the MsgPack specification lays them out.
var leads = func() (t [256]lead) {
	for b := range 256 {
		switch {
		case b <= 0x7f || b >= 0xe0:
			t[b] = lead{formScalar, 1, 0, 0}
		case b <= 0x8f:
			t[b] = lead{formMap, 1, 0, uint8(b & 0x0f)}
		case b <= 0x9f:
			t[b] = lead{formArray, 1, 0, uint8(b & 0x0f)}
		case b <= 0xbf:
			t[b] = lead{formText, 1, 0, uint8(b & 0x1f)}
		}
	}
	t[0xc0] = lead{formNil, 1, 0, 0}
	t[0xc2], t[0xc3] = lead{formScalar, 1, 0, 0}, lead{formScalar, 1, 0, 0}
	for i, width := range []uint8{1, 2, 4} {
		t[0xc4+i] = lead{formBinary, 1 + width, width, 0}
		t[0xc7+i] = lead{formExt, 2 + width, width, 0}
		t[0xd9+i] = lead{formText, 1 + width, width, 0}
	}
	for i, size := range []uint8{4, 8, 1, 2, 4, 8, 1, 2, 4, 8} { // ca-d3: floats, uints, ints
		t[0xca+i] = lead{formScalar, 1 + size, 0, 0}
	}
	for i := range 5 { // d4-d8: ext of 1, 2, 4, 8, 16 bytes
		t[0xd4+i] = lead{formExt, 2, 0, 1 << i}
	}
	for i, width := range []uint8{2, 4} {
		t[0xdc+i] = lead{formArray, 1 + width, width, 0}
		t[0xde+i] = lead{formMap, 1 + width, width, 0}
	}
	return t
}()

// measure reads the start of the value at b: its form, how many bytes it takes
// without its elements, and how many elements follow (keys and values both
// count). All of these bytes are there, and at least one byte per element.
func measure(b []byte) (f form, size, elements int64, err error) {
	if len(b) == 0 {
		return 0, 0, 0, ErrTruncated
	}
	l := &leads[b[0]]
	size = int64(l.head)
	if int64(len(b)) < size {
		return 0, 0, 0, ErrTruncated
	}
	n := int64(l.fixed)
	switch l.width {
	case 1:
		n = int64(b[1])
	case 2:
		n = int64(binary.BigEndian.Uint16(b[1:]))
	case 4:
		n = int64(binary.BigEndian.Uint32(b[1:]))
	}
	switch l.form {
	case formArray:
		elements = n
	case formMap:
		elements = 2 * n
	case formReserved:
		return 0, 0, 0, ErrReserved
	default:
		size += n
	}
	if int64(len(b)) < size+elements {
		return 0, 0, 0, ErrTruncated
	}
	return l.form, size, elements, nil
}

// quick holds, for each first byte that alone says how long its value is, that
// length, and 0 for all other values and extensions. Most values of a frame are of
// this sort.
var quick = func() (t [256]uint8) {
	for b, l := range leads {
		if l.width == 0 && (l.form == formNil || l.form == formScalar || l.form == formText) {
			t[b] = l.head + l.fixed
		}
	}
	return t
}()

// quickSize is the length of the value at b[at:] if it is of the quick sort and all
// there, otherwise 0.
func quickSize(b []byte, at int) int {
	if at < len(b) {
		if n := int(quick[b[at]]); n <= len(b)-at {
			return n
		}
	}
	return 0
}

// isShortText reports whether lead starts a text of up to 31 bytes.
func isShortText(lead byte) bool { return lead&0xe0 == 0xa0 }

// skip returns b after its first n values. It needs no guard, does not recurse and
// takes time linear in the values.
func skip(b []byte, n int) ([]byte, error) {
	at := 0
	for left := int64(n); left > 0; left-- {
		if n := quickSize(b, at); n != 0 {
			at += n
			continue
		}
		_, size, elements, err := measure(b[at:])
		if err != nil {
			return nil, err
		}
		at += int(size)
		left += elements
	}
	return b[at:], nil
}
