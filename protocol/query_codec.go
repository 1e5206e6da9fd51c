package protocol

import "github.com/tinylib/msgp/msgp"

func (m *QuerySub) readBody(r *reader) {
	var inner []string
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "queryId":
			m.QueryID = f.required(0).str()
		case "mapName":
			m.MapName = f.required(1).str()
		case "query":
			m.Query = f.required(2).raw()
			var err error
			if _, inner, err = inspectQuery(m.Query); err != nil {
				r.fault(err)
			}
		case "fields":
			m.Fields = r.strings()
		case "consistency":
			m.Consistency = r.str()
		default:
			r.skip()
		}
	}
	f.end("queryId", "mapName", "query")
	if m.Fields == nil {
		m.Fields = inner
	}
}

// inspectQuery looks into a query object: whether it restricts nothing, and its
// own list of fields.
func inspectQuery(query msgp.Raw) (plain bool, inner []string, err error) {
	plain = true
	r := reader{b: query}
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "where", "sort", "groupBy", "aggregations":
			plain = plain && isEmptyContainer(r.b)
		case "predicate", "limit", "cursor":
			plain = false
		case "fields":
			inner = r.strings()
			plain = plain && len(inner) == 0
			continue
		}
		r.skip()
	}
	f.end()
	return plain && r.err == nil, inner, r.err
}

func isEmptyContainer(b []byte) bool {
	f, _, elements, err := measure(b)
	return err == nil && (f == formArray || f == formMap) && elements == 0
}

func (m *QuerySub) appendFields(o object) object {
	o.str("queryId", m.QueryID)
	o.str("mapName", m.MapName)
	o.key("query")
	if len(m.Query) == 0 {
		o.buf = msgp.AppendMapHeader(o.buf, 0)
	} else {
		o.buf = append(o.buf, m.Query...)
	}
	if m.Fields != nil {
		o.strings("fields", m.Fields)
	}
	o.text("consistency", m.Consistency)
	return o
}

func (m *QueryResp) readBody(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "queryId":
			m.QueryID = f.required(0).str()
		case "results":
			m.Results = readRows(f.required(1))
		case "nextCursor":
			m.NextCursor = r.str()
		case "hasMore":
			m.HasMore = r.bool()
		case "cursorStatus":
			m.CursorStatus = CursorStatus(r.str())
		case "merkleRootHash":
			m.MerkleRootHash = uint32(r.whole(1<<32 - 1))
		case "error":
			m.Error = r.str()
		case "code":
			m.Code = r.str()
		default:
			r.skip()
		}
	}
	f.end("queryId", "results")
}

func readRows(r *reader) []QueryRow {
	rows := []QueryRow{}
	for a := r.array(); a.next(); {
		var row QueryRow
		f := r.fields()
		for f.next() {
			switch string(f.name) {
			case "key":
				row.Key = f.required(0).str()
			case "value":
				row.Value = r.raw()
			default:
				r.skip()
			}
		}
		f.end("key")
		rows = append(rows, row)
	}
	return rows
}

func (m *QueryResp) appendFields(o object) object {
	o.str("queryId", m.QueryID)
	o.key("results")
	o.buf = msgp.AppendArrayHeader(o.buf, uint32(len(m.Results)))
	for i := range m.Results {
		row := newObject(o.buf)
		row.str("key", m.Results[i].Key)
		row.raw("value", m.Results[i].Value)
		o.buf = row.buf
	}
	o.text("nextCursor", m.NextCursor)
	if m.HasMore {
		o.bool("hasMore", true)
	}
	o.text("cursorStatus", string(m.CursorStatus))
	if m.MerkleRootHash != 0 {
		o.int("merkleRootHash", int64(m.MerkleRootHash))
	}
	o.text("error", m.Error)
	o.text("code", m.Code)
	return o
}

func (m *QueryUpdate) readBody(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "queryId":
			m.QueryID = f.required(0).str()
		case "key":
			m.Key = f.required(1).str()
		case "value":
			m.Value = r.raw()
		case "changeType":
			m.ChangeType = ChangeType(f.required(2).str())
		default:
			r.skip()
		}
	}
	f.end("queryId", "key", "changeType")
}

func (m *QueryUpdate) appendFields(o object) object {
	o.str("queryId", m.QueryID)
	o.str("key", m.Key)
	o.raw("value", m.Value)
	o.str("changeType", string(m.ChangeType))
	return o
}
