package protocol

import (
	"fmt"
	"reflect"
	"strings"
)

// schema is how the struct type of a message, or of a part of one, lies in a map.
// It is made from the fields' tags: `wire:"name"` for a field that must be there,
// `wire:"name,optional"` for one that is left out when zero. A field of type
// msgp.Raw may always be missing, which is nil. Embedded structs count as their
// fields.
type schema struct {
	fields []schemaField
	byName map[string]int
	// required holds the indexes of the fields that must be there.
	required []int
}

type schemaField struct {
	name     string
	index    []int
	optional bool
	codec    *codec
}

// schemas holds the schema of each kind that is not selfCoded.
var schemas = func() (t [kindCount]*schema) {
	b := schemaBuilder{structs: map[reflect.Type]*schema{}}
	for k := KindInvalid + 1; k < kindCount; k++ {
		m := kinds[k].alloc()
		if _, ok := m.(selfCoded); !ok {
			t[k] = b.schema(reflect.TypeOf(m).Elem())
		}
	}
	return t
}()

func (s *schema) read(r *reader, m Message) {
	s.readStruct(r, reflect.ValueOf(m).Elem())
}

func (s *schema) readStruct(r *reader, v reflect.Value) {
	f := r.fields()
	for f.next() {
		i, ok := s.byName[string(f.name)]
		if !ok {
			r.skip()
			continue
		}
		f.required(i)
		s.fields[i].codec.read(r, v.FieldByIndex(s.fields[i].index))
	}
	f.end()
	for _, i := range s.required {
		if f.seen&(1<<i) == 0 && r.err == nil {
			r.err = atField(s.fields[i].name, ErrMissing)
		}
	}
}

func (s *schema) append(o object, m Message) object {
	return s.appendStruct(o, reflect.ValueOf(m).Elem())
}

func (s *schema) appendStruct(o object, v reflect.Value) object {
	for i := range s.fields {
		f := &s.fields[i]
		value := v.FieldByIndex(f.index)
		if f.optional && value.IsZero() {
			continue
		}
		o.key(f.name)
		o.buf = f.codec.append(o.buf, value)
	}
	return o
}

// schemaBuilder makes schemas, one per struct type.
type schemaBuilder struct {
	structs map[reflect.Type]*schema
}

// maxFields is what fits a map header of one byte beside "type".
const maxFields = 14

func (b *schemaBuilder) schema(t reflect.Type) *schema {
	if s := b.structs[t]; s != nil {
		return s
	}
	s := &schema{byName: map[string]int{}}
	b.structs[t] = s
	for _, sf := range reflect.VisibleFields(t) {
		if sf.Anonymous {
			continue
		}
		name, option, _ := strings.Cut(sf.Tag.Get("wire"), ",")
		f := schemaField{name: name, index: sf.Index, optional: option == "optional", codec: b.codec(sf.Type)}
		if name == "" || len(s.fields) == maxFields {
			panic(fmt.Sprintf("protocol: field %s of %s has no wire name or is one too many", sf.Name, t))
		}
		if !f.optional && sf.Type != rawType {
			s.required = append(s.required, len(s.fields))
		}
		s.byName[name] = len(s.fields)
		s.fields = append(s.fields, f)
	}
	return s
}
