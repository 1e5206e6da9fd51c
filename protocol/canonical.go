package protocol

import (
	"math"
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"
)

// appendCanonical appends the value at the start of b to dst with extension
// values replaced by nil and map keys by their text, and returns the rest of b.
// The caller has guarded b, which bounds the recursion.
func appendCanonical(dst, b []byte) (out, rest []byte, err error) {
	f, size, elements, err := measure(b)
	if err != nil {
		return nil, nil, err
	}
	switch f {
	case formExt:
		return msgp.AppendNil(dst), b[size:], nil
	case formArray, formMap:
	default:
		return append(dst, b[:size]...), b[size:], nil
	}
	dst, rest = append(dst, b[:size]...), b[size:]
	for i := range elements {
		if f == formMap && i%2 == 0 {
			dst, rest, err = appendTextKey(dst, rest)
		} else {
			dst, rest, err = appendCanonical(dst, rest)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return dst, rest, nil
}

// appendTextKey appends the map key at the start of b as text.
func appendTextKey(dst, b []byte) (out, rest []byte, err error) {
	f, size, _, err := measure(b)
	if err != nil {
		return nil, nil, err
	}
	if f == formText {
		return append(dst, b[:size]...), b[size:], nil
	}
	text, rest, err := keyText(b)
	if err != nil {
		return nil, nil, err
	}
	return msgp.AppendString(dst, text), rest, nil
}

// keyText renders the map key at the start of b as clients render it. A key that
// is itself an array or a map has no text: ErrValue.
func keyText(b []byte) (text string, rest []byte, err error) {
	switch t := msgp.NextType(b); t {
	case msgp.StrType:
		v, rest, err := msgp.ReadStringZC(b)
		return strings.ToValidUTF8(string(v), "\ufffd"), rest, err
	case msgp.BinType:
		v, rest, err := msgp.ReadBytesZC(b)
		return strings.ToValidUTF8(string(v), "\ufffd"), rest, err
	case msgp.BoolType:
		v, rest, err := msgp.ReadBoolBytes(b)
		return strconv.FormatBool(v), rest, err
	case msgp.IntType:
		v, rest, err := msgp.ReadInt64Bytes(b)
		return strconv.FormatInt(v, 10), rest, err
	case msgp.UintType:
		v, rest, err := msgp.ReadUint64Bytes(b)
		return strconv.FormatUint(v, 10), rest, err
	case msgp.Float32Type, msgp.Float64Type:
		v, rest, err := readFloat(b)
		return floatText(v), rest, err
	case msgp.ArrayType, msgp.MapType:
		return "", nil, ErrValue
	default: // nil, and extensions, which count as nil
		rest, err := skip(b, 1)
		return "null", rest, err
	}
}

func readFloat(b []byte) (float64, []byte, error) {
	if msgp.NextType(b) == msgp.Float32Type {
		v, rest, err := msgp.ReadFloat32Bytes(b)
		return float64(v), rest, err
	}
	return msgp.ReadFloat64Bytes(b)
}

// floatText is the decimal text that clients give a number: shortest digits that
// read back equal, plain from 1e-6 up to below 1e21, otherwise with an exponent
// without leading zeros (ECMA-262, Number::toString).
func floatText(v float64) string {
	switch abs := math.Abs(v); {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	case v == 0:
		return "0"
	case abs >= 1e-6 && abs < 1e21:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	s := strconv.FormatFloat(v, 'e', -1, 64)
	for _, sign := range []string{"e-0", "e+0"} {
		s = strings.Replace(s, sign, sign[:2], 1)
	}
	return s
}
