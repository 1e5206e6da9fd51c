package protocol

import "errors"

// errNoKind is returned by Append for a message that is in no table.
var errNoKind = errors.New("message has no kind")

// Append appends the frame of m to dst. What it writes follows the rules for
// sending: no extensions, absent fields left out, whole numbers as integers, maps
// sorted by key. Raw fields are written as they are: they must be empty, which
// stands for nil, or hold one value. The only error is a message of no kind.
func Append(dst []byte, m Message) ([]byte, error) {
	if m == nil || !m.Kind().valid() {
		return dst, errNoKind
	}
	kind := m.Kind()
	row := &kinds[kind]
	o := newObject(dst)
	o.str("type", row.name)
	if row.layout == flat {
		return appendBody(o, kind, m).buf, nil
	}
	o.key(row.layout.key())
	return appendBody(newObject(o.buf), kind, m).buf, nil
}

// AppendStamped is Append for a message with a payload, beside which it puts a timestamp:
// clients take one for the time until which they have seen everything of their maps.
func AppendStamped(dst []byte, m Message, ts Timestamp) ([]byte, error) {
	if m == nil || !m.Kind().valid() || kinds[m.Kind()].layout == flat {
		return dst, errNoKind
	}
	row := &kinds[m.Kind()]
	o := newObject(dst)
	o.str("type", row.name)
	o.key(row.layout.key())
	o.buf = appendBody(newObject(o.buf), m.Kind(), m).buf
	o.key("timestamp")
	o.buf = ts.appendTo(o.buf)
	return o.buf, nil
}

func appendBody(o object, kind Kind, m Message) object {
	if c, ok := m.(selfCoded); ok {
		return c.appendFields(o)
	}
	return schemas[kind].append(o, m)
}
