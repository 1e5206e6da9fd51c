package protocol

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tinylib/msgp/msgp"
)

// codec reads and writes the values of one Go type.
type codec struct {
	read   func(r *reader, v reflect.Value)
	append func(dst []byte, v reflect.Value) []byte
}

var (
	rawType  = reflect.TypeFor[msgp.Raw]()
	selfType = reflect.TypeFor[selfReading]()
)

func (b *schemaBuilder) codec(t reflect.Type) *codec {
	if t == rawType {
		return &codec{
			read:   func(r *reader, v reflect.Value) { v.SetBytes(r.raw()) },
			append: func(dst []byte, v reflect.Value) []byte { return appendRaw(dst, v.Bytes()) },
		}
	}
	if reflect.PointerTo(t).Implements(selfType) {
		return &codec{
			read: func(r *reader, v reflect.Value) { v.Addr().Interface().(selfReading).readFrom(r) },
			append: func(dst []byte, v reflect.Value) []byte {
				return v.Addr().Interface().(selfReading).appendTo(dst)
			},
		}
	}
	if c, ok := scalarCodecs[t.Kind()]; ok {
		return &c
	}
	switch t.Kind() {
	case reflect.Pointer:
		return pointerCodec(b.codec(t.Elem()))
	case reflect.Slice:
		return sliceCodec(b.codec(t.Elem()))
	case reflect.Map:
		return mapCodec(t, b.codec(t.Elem()))
	case reflect.Struct:
		s := b.schema(t)
		return &codec{
			read: s.readStruct,
			append: func(dst []byte, v reflect.Value) []byte {
				return s.appendStruct(newObject(dst), v).buf
			},
		}
	default:
		panic(fmt.Sprintf("protocol: no codec for %s", t))
	}
}

// scalarCodecs holds the codecs of strings, booleans and numbers. Unsigned and
// signed integers alike are whole numbers from 0.
var scalarCodecs = map[reflect.Kind]codec{
	reflect.String: {
		read:   func(r *reader, v reflect.Value) { v.SetString(r.str()) },
		append: func(dst []byte, v reflect.Value) []byte { return msgp.AppendString(dst, v.String()) },
	},
	reflect.Bool: {
		read:   func(r *reader, v reflect.Value) { v.SetBool(r.bool()) },
		append: func(dst []byte, v reflect.Value) []byte { return msgp.AppendBool(dst, v.Bool()) },
	},
	reflect.Float64: {
		read:   func(r *reader, v reflect.Value) { v.SetFloat(r.number()) },
		append: func(dst []byte, v reflect.Value) []byte { return msgp.AppendFloat64(dst, v.Float()) },
	},
	reflect.Int64: {
		read:   func(r *reader, v reflect.Value) { v.SetInt(r.whole(MaxSafeInteger)) },
		append: func(dst []byte, v reflect.Value) []byte { return msgp.AppendInt64(dst, v.Int()) },
	},
	reflect.Uint16: uintCodec(1<<16 - 1),
	reflect.Uint32: uintCodec(1<<32 - 1),
	reflect.Uint64: uintCodec(MaxSafeInteger),
}

func uintCodec(limit int64) codec {
	return codec{
		read:   func(r *reader, v reflect.Value) { v.SetUint(uint64(r.whole(limit))) },
		append: func(dst []byte, v reflect.Value) []byte { return msgp.AppendUint64(dst, v.Uint()) },
	}
}

func pointerCodec(elem *codec) *codec {
	return &codec{
		read: func(r *reader, v reflect.Value) {
			v.Set(reflect.New(v.Type().Elem()))
			elem.read(r, v.Elem())
		},
		append: func(dst []byte, v reflect.Value) []byte { return elem.append(dst, v.Elem()) },
	}
}

const (
	// smallElement is the size of a string or slice header. Slices of such are made
	// in full at once, because growing them in steps costs several times as much.
	smallElement = 24
	// firstElements is how many greater elements a slice is made for at first: they
	// have required fields, so that a frame cannot hold very many.
	firstElements = 256
)

func sliceCodec(elem *codec) *codec {
	return &codec{
		read: func(r *reader, v reflect.Value) {
			a := r.array()
			size := a.left
			if v.Type().Elem().Size() > smallElement {
				size = min(size, firstElements)
			}
			if v.SetZero(); size > 0 {
				v.Set(reflect.MakeSlice(v.Type(), 0, size))
			}
			for a.next() {
				v.Grow(1)
				v.SetLen(a.at + 1)
				elem.read(r, v.Index(a.at))
			}
		},
		append: func(dst []byte, v reflect.Value) []byte {
			dst = msgp.AppendArrayHeader(dst, uint32(v.Len()))
			for i := range v.Len() {
				dst = elem.append(dst, v.Index(i))
			}
			return dst
		},
	}
}

// mapCodec reads keys that are not text by their text and writes keys in order.
func mapCodec(t reflect.Type, elem *codec) *codec {
	return &codec{
		read: func(r *reader, v reflect.Value) {
			n, rest, err := msgp.ReadMapHeaderBytes(r.b)
			if err != nil {
				r.reject(ErrType)
				return
			}
			v.Set(reflect.MakeMap(t))
			for range r.declared(n, rest) {
				readEntry(r, v, elem)
			}
		},
		append: func(dst []byte, v reflect.Value) []byte {
			keys := v.MapKeys()
			slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
			dst = msgp.AppendMapHeader(dst, uint32(len(keys)))
			for _, k := range keys {
				dst = msgp.AppendString(dst, k.String())
				value := reflect.New(t.Elem()).Elem() // map entries are not addressable
				value.Set(v.MapIndex(k))
				dst = elem.append(dst, value)
			}
			return dst
		},
	}
}

func readEntry(r *reader, v reflect.Value, elem *codec) {
	clean := r.err == nil
	key, rest, err := keyText(r.b)
	if err != nil {
		r.reject(ErrType)
		r.skip()
		return
	}
	r.b = rest
	value := reflect.New(v.Type().Elem()).Elem()
	elem.read(r, value)
	switch {
	case r.err == nil:
		v.SetMapIndex(reflect.ValueOf(key), value)
	case clean:
		r.err = atField(fieldName([]byte(key)), r.err)
	}
}
