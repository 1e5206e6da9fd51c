package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"
)

// Value is one MsgPack value as it is stored and sent. Empty means nil.
type Value []byte

// Encode returns the Value of v. It has the types of JSON, whole numbers apart from others,
// and bytes: structs, maps and whatever else encoding/json knows come out as they do there,
// but for []byte and Value at the top, which stay what they are. What encoding/json refuses
// is an error.
func Encode(v any) (Value, error) {
	switch v := v.(type) {
	case Value:
		return v, nil
	case nil:
		return msgp.AppendNil(nil), nil
	case string:
		return msgp.AppendString(nil, v), nil
	case bool:
		return msgp.AppendBool(nil, v), nil
	case int:
		return msgp.AppendInt(nil, v), nil
	case int64:
		return msgp.AppendInt64(nil, v), nil
	case []byte:
		return msgp.AppendBytes(nil, v), nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode value: %w", err)
	}
	return EncodeJSON(text)
}

// EncodeJSON returns the Value of a JSON text. Numbers without fraction and exponent are
// whole numbers, if 64 bits hold them.
func EncodeJSON(text []byte) (Value, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("encode value: %w", err)
	}
	if dec.More() {
		return nil, errors.New("encode value: more than one JSON value")
	}
	b, err := appendValue(nil, v)
	if err != nil {
		return nil, fmt.Errorf("encode value: %w", err)
	}
	return b, nil
}

// appendValue appends what a JSON decoder made of a text, maps in the order of their keys.
func appendValue(dst []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		return appendNumber(dst, v)
	case []any:
		dst = msgp.AppendArrayHeader(dst, uint32(len(v)))
		for _, element := range v {
			if dst, err = appendValue(dst, element); err != nil {
				return nil, err
			}
		}
		return dst, nil
	case map[string]any:
		dst = msgp.AppendMapHeader(dst, uint32(len(v)))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if dst, err = appendValue(msgp.AppendString(dst, key), v[key]); err != nil {
				return nil, err
			}
		}
		return dst, nil
	default:
		return msgp.AppendIntf(dst, v)
	}
}

func appendNumber(dst []byte, n json.Number) ([]byte, error) {
	if !strings.ContainsAny(n.String(), ".eE") {
		if whole, err := n.Int64(); err == nil {
			return msgp.AppendInt64(dst, whole), nil
		}
		if whole, err := strconv.ParseUint(n.String(), 10, 64); err == nil {
			return msgp.AppendUint64(dst, whole), nil
		}
	}
	number, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("number %s is out of range", n)
	}
	return msgp.AppendFloat64(dst, number), nil
}

// IsNil reports whether v is nil.
func (v Value) IsNil() bool { return len(v) == 0 || len(v) == 1 && msgp.IsNil(v) }

// Decode stores v in what target points to, as encoding/json does with the value's JSON;
// *Value and *[]byte take the MsgPack bytes and the content of binary data.
func (v Value) Decode(target any) error {
	switch t := target.(type) {
	case *Value:
		*t = bytes.Clone(v)
		return nil
	case *[]byte:
		if msgp.NextType(v) == msgp.BinType {
			b, _, err := msgp.ReadBytesBytes(v, nil)
			*t = b
			return err
		}
	}
	text, err := v.MarshalJSON()
	if err != nil {
		return err
	}
	return json.Unmarshal(text, target)
}

// MarshalJSON returns v as JSON; bytes become base64 text.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.IsNil() {
		return []byte("null"), nil
	}
	var text bytes.Buffer
	if _, err := msgp.UnmarshalAsJSON(&text, v); err != nil {
		return nil, fmt.Errorf("decode value: %w", err)
	}
	return text.Bytes(), nil
}

// String is v as JSON, for people.
func (v Value) String() string {
	text, err := v.MarshalJSON()
	if err != nil {
		return fmt.Sprintf("% x", []byte(v))
	}
	return string(text)
}
