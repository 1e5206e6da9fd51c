package protocol

import "github.com/tinylib/msgp/msgp"

// OpAck is OP_ACK: the verdict on accepted operations. Clients take LastID as a
// watermark over everything they sent before.
type OpAck struct {
	// LastID is the id of the last operation covered, verbatim as sent.
	LastID string
	// AchievedLevel is what the covered operations reached.
	AchievedLevel WriteConcern
	// Results lists the accepted operations only. Nil leaves it out and claims that
	// all covered operations were accepted; empty claims that none was.
	Results []AckResult
}

// AckResult is one accepted operation.
type AckResult struct {
	OpID          string
	Success       bool
	AchievedLevel WriteConcern
	// LatencyMillis is left out when zero.
	LatencyMillis float64
	// Error is left out when empty; servers never set it.
	Error string
}

// Kind implements Message.
func (*OpAck) Kind() Kind { return KindOpAck }

func (m *OpAck) readBody(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "lastId":
			m.LastID = f.required(0).str()
		case "achievedLevel":
			m.AchievedLevel = r.level()
		case "results":
			a := r.array()
			m.Results = make([]AckResult, 0, min(a.left, firstElements))
			for a.next() {
				var res AckResult
				res.readFrom(r)
				m.Results = append(m.Results, res)
			}
		default:
			r.skip()
		}
	}
	f.end("lastId")
}

func (m *OpAck) appendFields(o object) object {
	o.str("lastId", m.LastID)
	o.text("achievedLevel", m.AchievedLevel.String())
	if m.Results == nil {
		return o
	}
	o.key("results")
	o.buf = msgp.AppendArrayHeader(o.buf, uint32(len(m.Results)))
	for i := range m.Results {
		o.buf = m.Results[i].appendTo(o.buf)
	}
	return o
}

func (a AckResult) appendTo(dst []byte) []byte {
	o := newObject(dst)
	o.str("opId", a.OpID)
	o.bool("success", a.Success)
	o.str("achievedLevel", a.AchievedLevel.String())
	if a.LatencyMillis != 0 {
		o.key("latencyMs")
		o.buf = msgp.AppendFloat64(o.buf, a.LatencyMillis)
	}
	o.text("error", a.Error)
	return o.buf
}

func (a *AckResult) readFrom(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "opId":
			a.OpID = f.required(0).str()
		case "success":
			a.Success = f.required(1).bool()
		case "achievedLevel":
			a.AchievedLevel = f.required(2).level()
		case "latencyMs":
			a.LatencyMillis = r.number()
		case "error":
			a.Error = r.str()
		default:
			r.skip()
		}
	}
	f.end("opId", "success", "achievedLevel")
}

// OpRejected is OP_REJECTED: the final refusal of one operation, sent before the
// acknowledgement of its batch.
type OpRejected struct {
	OpID   string
	Reason string
	Code   Code
	// Permanent means that sending the operation again can never succeed.
	Permanent bool
}

// Kind implements Message.
func (*OpRejected) Kind() Kind { return KindOpRejected }

func (m *OpRejected) readBody(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "opId":
			m.OpID = f.required(0).str()
		case "reason":
			m.Reason = f.required(1).str()
		case "code":
			m.Code = Code(f.required(2).whole(1<<16 - 1))
		case "permanent":
			m.Permanent = f.required(3).bool()
		default:
			r.skip()
		}
	}
	f.end("opId", "reason", "code", "permanent")
}

func (m *OpRejected) appendFields(o object) object {
	o.str("opId", m.OpID)
	o.str("reason", m.Reason)
	o.int("code", int64(m.Code))
	o.bool("permanent", m.Permanent)
	return o
}
