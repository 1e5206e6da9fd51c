package protocol

import "github.com/tinylib/msgp/msgp"

// object appends one map. Its header is a single byte that counts the entries as
// they come: no message has more than the 15 fields that fit. It is passed by
// value so that encoding allocates nothing but the output.
type object struct {
	buf  []byte
	head int
}

func newObject(dst []byte) object {
	return object{buf: append(dst, 0x80), head: len(dst)}
}

// key starts an entry; the caller appends its value to o.buf.
func (o *object) key(name string) {
	o.buf[o.head]++
	o.buf = msgp.AppendString(o.buf, name)
}

func (o *object) str(name, v string) {
	o.key(name)
	o.buf = msgp.AppendString(o.buf, v)
}

// text adds an optional str, which is left out when empty.
func (o *object) text(name, v string) {
	if v != "" {
		o.str(name, v)
	}
}

func (o *object) bool(name string, v bool) {
	o.key(name)
	o.buf = msgp.AppendBool(o.buf, v)
}

func (o *object) int(name string, v int64) {
	o.key(name)
	o.buf = msgp.AppendInt64(o.buf, v)
}

// raw adds a value that must be there: nil if v is empty.
func (o *object) raw(name string, v msgp.Raw) {
	o.key(name)
	o.buf = appendRaw(o.buf, v)
}

func (o *object) strings(name string, list []string) {
	o.key(name)
	o.buf = msgp.AppendArrayHeader(o.buf, uint32(len(list)))
	for _, s := range list {
		o.buf = msgp.AppendString(o.buf, s)
	}
}

func appendRaw(dst []byte, v msgp.Raw) []byte {
	if len(v) == 0 {
		return msgp.AppendNil(dst)
	}
	return append(dst, v...)
}
