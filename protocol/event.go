package protocol

import "github.com/tinylib/msgp/msgp"

// ServerEvent is SERVER_EVENT: one change of a map, for its subscribers.
type ServerEvent struct {
	MapName   string
	EventType OpType
	Key       string
	// Record is the stored record, for PUT and REMOVE. A REMOVE needs it: clients
	// delete by merging its tombstone.
	Record *Record
	// ORRecord is the added record, for OR_ADD.
	ORRecord *ORRecord
	// ORTag is the removed tag, for OR_REMOVE; OR_ADD repeats its tag here.
	ORTag string
}

// Kind implements Message.
func (*ServerEvent) Kind() Kind { return KindServerEvent }

func (m *ServerEvent) readBody(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "mapName":
			m.MapName = f.required(0).shared(&r.mapName)
		case "eventType":
			m.EventType = f.required(1).opType()
		case "key":
			m.Key = f.required(2).str()
		case "record":
			m.Record = new(Record)
			m.Record.readFrom(r)
		case "orRecord":
			m.ORRecord = new(ORRecord)
			m.ORRecord.readFrom(r)
		case "orTag":
			m.ORTag = r.str()
		default:
			r.skip()
		}
	}
	f.end("mapName", "eventType", "key")
}

func (m *ServerEvent) appendFields(o object) object {
	o.str("mapName", m.MapName)
	o.str("eventType", string(m.EventType))
	o.str("key", m.Key)
	if m.Record != nil {
		o.key("record")
		o.buf = m.Record.appendTo(o.buf)
	}
	if m.ORRecord != nil {
		o.key("orRecord")
		o.buf = m.ORRecord.appendTo(o.buf)
	}
	o.text("orTag", m.ORTag)
	return o
}

// ServerBatchEvent is SERVER_BATCH_EVENT: several changes in order, possibly of
// several maps.
type ServerBatchEvent struct {
	Events []ServerEvent
}

// Kind implements Message.
func (*ServerBatchEvent) Kind() Kind { return KindServerBatchEvent }

func (m *ServerBatchEvent) readBody(r *reader) {
	f := r.fields()
	for f.next() {
		if string(f.name) != "events" {
			r.skip()
			continue
		}
		m.Events = []ServerEvent{}
		for a := f.required(0).array(); a.next(); {
			var e ServerEvent
			e.readBody(r)
			m.Events = append(m.Events, e)
		}
	}
	f.end("events")
}

func (m *ServerBatchEvent) appendFields(o object) object {
	o.key("events")
	o.buf = msgp.AppendArrayHeader(o.buf, uint32(len(m.Events)))
	for i := range m.Events {
		o.buf = m.Events[i].appendFields(newObject(o.buf)).buf
	}
	return o
}

// GCPrune is GC_PRUNE: the server has dropped all tombstones before OlderThan and
// clients do the same.
type GCPrune struct {
	OlderThan Timestamp `wire:"olderThan"`
}

// Kind implements Message.
func (*GCPrune) Kind() Kind { return KindGCPrune }

// SyncResetRequired is SYNC_RESET_REQUIRED: the client clears the map and syncs
// from nothing.
type SyncResetRequired struct {
	MapName string `wire:"mapName"`
	Reason  string `wire:"reason"`
}

// Kind implements Message.
func (*SyncResetRequired) Kind() Kind { return KindSyncResetRequired }

// ErrorMessage is ERROR: a request failed as a whole and nothing of it was
// applied. Clients log it.
type ErrorMessage struct {
	Code    Code   `wire:"code"`
	Message string `wire:"message"`
	// Details is optional; a map naming the request's correlation id where there
	// is one.
	Details msgp.Raw `wire:"details,optional"`
}

// Kind implements Message.
func (*ErrorMessage) Kind() Kind { return KindError }
