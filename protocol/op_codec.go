package protocol

import "github.com/tinylib/msgp/msgp"

func (m *ClientOpMessage) readBody(r *reader) { m.Op.read(r) }

func (m *ClientOpMessage) appendFields(o object) object { return m.Op.appendFields(o) }

func (m *OpBatch) readBody(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "ops":
			m.Ops = readOps(f.required(0))
		case "writeConcern":
			m.WriteConcern = r.level()
		case "timeout":
			m.TimeoutMillis = r.millis()
		default:
			r.skip()
		}
	}
	f.end("ops")
}

func readOps(r *reader) []ClientOp {
	a := r.array()
	if a.left > MaxBatchOps {
		r.fault(ErrTooManyItems)
		r.b = nil // none of them is looked at
		return nil
	}
	ops := make([]ClientOp, a.left)
	for a.next() {
		ops[a.at].read(r)
	}
	return ops
}

func (m *OpBatch) appendFields(o object) object {
	o.key("ops")
	o.buf = msgp.AppendArrayHeader(o.buf, uint32(len(m.Ops)))
	for i := range m.Ops {
		o.buf = m.Ops[i].appendFields(newObject(o.buf)).buf
	}
	if m.WriteConcern != LevelDefault {
		o.str("writeConcern", m.WriteConcern.String())
	}
	if m.TimeoutMillis != 0 {
		o.int("timeout", m.TimeoutMillis)
	}
	return o
}

// read reads one operation. Its faults go to op.Err, so that the operations
// around it are not touched.
func (op *ClientOp) read(r *reader) {
	before := r.err
	r.err = nil
	f := r.fields()
	f.nils = true
	for f.next() {
		op.readField(&f)
	}
	f.end("mapName", "key")
	if r.err != nil {
		op.Err = decodeError(r.err)
	}
	r.err = before
}

func (op *ClientOp) readField(f *fields) {
	r := f.r
	if r.isNil() {
		if string(f.name) == "record" {
			op.Record, op.RecordPresence = Record{}, Nil
		}
		r.skip()
		return
	}
	switch string(f.name) {
	case "id":
		op.ID = r.str()
	case "mapName":
		op.MapName = f.required(0).shared(&r.mapName)
	case "key":
		op.Key = f.required(1).str()
	case "opType":
		op.Type = r.opType()
	case "record":
		op.Record, op.RecordPresence = Record{}, Present
		op.Record.readStamped(r)
	case "orRecord":
		op.ORRecord = new(ORRecord)
		op.ORRecord.readFrom(r)
	case "orTag":
		op.ORTag = r.str()
	case "writeConcern":
		op.WriteConcern = r.level()
	case "timeout":
		op.TimeoutMillis = r.millis()
	case "timestamp":
		op.Timestamp.readFrom(r)
	case "fence":
		op.Fence = new(Fence)
		op.Fence.readFrom(r)
	default:
		r.skip()
	}
}

// opType reads an operation type; the known ones cost no allocation.
func (r *reader) opType() OpType {
	v := r.text()
	switch OpType(v) {
	case OpPut:
		return OpPut
	case OpRemove:
		return OpRemove
	case OpORAdd:
		return OpORAdd
	case OpORRemove:
		return OpORRemove
	default:
		return OpType(v)
	}
}

func (op *ClientOp) appendFields(o object) object {
	o.text("id", op.ID)
	o.str("mapName", op.MapName)
	o.str("key", op.Key)
	o.text("opType", string(op.Type))
	op.appendRecords(&o)
	if op.WriteConcern != LevelDefault {
		o.str("writeConcern", op.WriteConcern.String())
	}
	if op.TimeoutMillis != 0 {
		o.int("timeout", op.TimeoutMillis)
	}
	if !op.Timestamp.IsZero() {
		o.key("timestamp")
		o.buf = AppendTimestamp(o.buf, op.Timestamp)
	}
	if op.Fence != nil {
		o.key("fence")
		o.buf = op.Fence.appendTo(o.buf)
	}
	return o
}

func (op *ClientOp) appendRecords(o *object) {
	switch {
	case op.RecordPresence == Nil:
		o.raw("record", nil)
	case op.RecordPresence == Present:
		o.key("record")
		o.buf = op.Record.appendUnstamped(o.buf)
	}
	if op.ORRecord != nil {
		o.key("orRecord")
		o.buf = op.ORRecord.appendTo(o.buf)
	}
	o.text("orTag", op.ORTag)
}

// appendUnstamped is appendTo, without a timestamp if rec has none.
func (rec Record) appendUnstamped(dst []byte) []byte {
	if !rec.Timestamp.IsZero() {
		return rec.appendTo(dst)
	}
	o := newObject(dst)
	o.raw("value", rec.Value)
	if rec.TTLMillis != 0 {
		o.int("ttlMs", rec.TTLMillis)
	}
	return o.buf
}

func (f Fence) appendTo(dst []byte) []byte {
	o := newObject(dst)
	o.str("lock", f.Lock)
	o.int("token", int64(f.Token))
	return o.buf
}

func (f *Fence) readFrom(r *reader) {
	w := r.fields()
	for w.next() {
		switch string(w.name) {
		case "lock":
			f.Lock = w.required(0).str()
		case "token":
			f.Token = uint64(w.required(1).whole(MaxSafeInteger))
		default:
			r.skip()
		}
	}
	w.end("lock", "token")
}
