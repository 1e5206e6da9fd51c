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
			if inner, err = innerFields(m.Query); err != nil {
				r.fault(err)
			}
		case "fields":
			m.Fields = r.strings()
		case "consistency":
			m.Consistency = r.str()
		case "explain":
			m.Explain = r.bool()
		default:
			r.skip()
		}
	}
	f.end("queryId", "mapName", "query")
	if m.Fields == nil {
		m.Fields = inner
	}
}

// innerFields is the list of fields that a query object has itself.
func innerFields(query msgp.Raw) (inner []string, err error) {
	r := reader{b: query}
	f := r.fields()
	for f.next() {
		if string(f.name) == "fields" {
			inner = r.strings()
		} else {
			r.skip()
		}
	}
	f.end()
	return inner, r.err
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
	if m.Explain {
		o.bool("explain", true)
	}
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
		case "plan":
			m.Plan = new(QueryPlan)
			m.Plan.readFrom(r)
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
	if m.Plan != nil {
		o.key("plan")
		o.buf = m.Plan.appendTo(o.buf)
	}
	return o
}

// counts are the numbers of a plan by their names.
func (p *QueryPlan) counts() []planCount {
	return []planCount{
		{"groupsScanned", &p.GroupsScanned}, {"groupsIndexed", &p.GroupsIndexed}, {"candidates", &p.Candidates}, {"matched", &p.Matched},
	}
}

type planCount struct {
	name  string
	value *int64
}

func (p *QueryPlan) readFrom(r *reader) {
	f := r.fields()
	for f.next() {
		switch name := string(f.name); name {
		case "kind":
			p.Kind = f.required(0).str()
		case "index":
			p.readIndex(r)
		case "groupsScanned", "groupsIndexed", "candidates", "matched":
			for _, c := range p.counts() {
				if c.name == name {
					*c.value = r.whole(MaxSafeInteger)
				}
			}
		default:
			r.skip()
		}
	}
	f.end("kind")
}

func (p *QueryPlan) readIndex(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "attribute":
			p.Attribute = f.required(0).str()
		case "type":
			p.IndexType = f.required(1).str()
		default:
			r.skip()
		}
	}
	f.end("attribute", "type")
}

func (p *QueryPlan) appendTo(dst []byte) []byte {
	o := newObject(dst)
	o.str("kind", p.Kind)
	if p.Attribute != "" || p.IndexType != "" {
		o.key("index")
		inner := newObject(o.buf)
		inner.str("attribute", p.Attribute)
		inner.str("type", p.IndexType)
		o.buf = inner.buf
	}
	for _, c := range p.counts() {
		o.int(c.name, *c.value)
	}
	return o.buf
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
