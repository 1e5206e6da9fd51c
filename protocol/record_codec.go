package protocol

import "strings"

// selfReading is implemented by field types with a codec of their own.
type selfReading interface {
	readFrom(r *reader)
	appendTo(dst []byte) []byte
}

// AppendTimestamp appends the wire form of t, a map of three fields.
func AppendTimestamp(dst []byte, t Timestamp) []byte {
	o := newObject(dst)
	o.int("millis", t.Millis)
	o.int("counter", t.Counter)
	o.str("nodeId", t.NodeID)
	return o.buf
}

// ReadTimestamp reads the wire form of a timestamp at the start of b and returns
// the rest of b. The error is a *DecodeError.
func ReadTimestamp(b []byte) (t Timestamp, rest []byte, err error) {
	r := reader{b: b}
	t.readFrom(&r)
	return t, r.b, r.failure()
}

// AppendRecord appends the wire form of rec: "value", always there, "timestamp",
// and "ttlMs" unless it is zero. rec.Value must be empty or one MsgPack value.
func AppendRecord(dst []byte, rec Record) []byte { return rec.appendTo(dst) }

// ReadRecord reads the wire form of a record at the start of b and returns the
// rest of b. The value aliases b. The error is a *DecodeError; damaged input costs
// no memory.
func ReadRecord(b []byte) (rec Record, rest []byte, err error) {
	r := reader{b: b}
	rec.readFrom(&r)
	return rec, r.b, r.failure()
}

func (r *reader) failure() error {
	if r.err == nil {
		return nil
	}
	return decodeError(r.err)
}

func (t Timestamp) appendTo(dst []byte) []byte { return AppendTimestamp(dst, t) }

func (t *Timestamp) readFrom(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "millis":
			t.Millis = f.required(0).millis()
		case "counter":
			t.Counter = f.required(1).whole(MaxSafeInteger)
		case "nodeId":
			t.NodeID = f.required(2).shared(&r.nodeID)
			if strings.IndexByte(t.NodeID, ':') >= 0 {
				r.fault(ErrValue)
			}
		default:
			r.skip()
		}
	}
	f.end("millis", "counter", "nodeId")
}

func (rec Record) appendTo(dst []byte) []byte {
	o := newObject(dst)
	o.raw("value", rec.Value)
	o.key("timestamp")
	o.buf = AppendTimestamp(o.buf, rec.Timestamp)
	if rec.TTLMillis != 0 {
		o.int("ttlMs", rec.TTLMillis)
	}
	return o.buf
}

func (rec *Record) readFrom(r *reader) {
	if !rec.readStamped(r) {
		r.fault(atField("timestamp", ErrMissing))
	}
}

// readStamped reads a record and reports whether it carried a timestamp. In an
// operation it may lack one, which asks the server to stamp it.
func (rec *Record) readStamped(r *reader) (stamped bool) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "value":
			rec.Value = r.raw()
		case "timestamp":
			rec.Timestamp.readFrom(f.required(0))
		case "ttlMs":
			rec.TTLMillis = r.whole(MaxSafeInteger)
		default:
			r.skip()
		}
	}
	f.end()
	return f.seen != 0
}

func (kr KeyedRecord) appendTo(dst []byte) []byte {
	o := newObject(dst)
	o.str("key", kr.Key)
	o.key("record")
	o.buf = kr.Record.appendTo(o.buf)
	return o.buf
}

func (kr *KeyedRecord) readFrom(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "key":
			kr.Key = f.required(0).str()
		case "record":
			kr.Record.readFrom(f.required(1))
		default:
			r.skip()
		}
	}
	f.end("key", "record")
}

func (rec ORRecord) appendTo(dst []byte) []byte {
	o := newObject(dst)
	o.raw("value", rec.Value)
	o.key("timestamp")
	o.buf = AppendTimestamp(o.buf, rec.Timestamp)
	o.str("tag", rec.Tag)
	if rec.TTLMillis != 0 {
		o.int("ttlMs", rec.TTLMillis)
	}
	return o.buf
}

func (rec *ORRecord) readFrom(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "value":
			rec.Value = r.raw()
		case "timestamp":
			rec.Timestamp.readFrom(f.required(0))
		case "tag":
			rec.Tag = f.required(1).str()
		case "ttlMs":
			rec.TTLMillis = r.whole(MaxSafeInteger)
		default:
			r.skip()
		}
	}
	f.end("timestamp", "tag")
}
