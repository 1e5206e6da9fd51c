package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// Query selects records of a map. The zero value selects all, in the order of their keys. It
// is the query object of the protocol, and a server refuses what it does not have (501).
type Query struct {
	// Where wants these values in these fields. A name may be a path with dots; "_key" is the
	// record's key.
	Where map[string]any
	// Predicate is the root of a predicate tree: a map with "op" and "attribute", "value" or
	// "children". Beside Where, both must hold.
	Predicate map[string]any
	// Sort orders the rows, the most significant field first.
	Sort []Order
	// Limit is how many rows are wanted at most; zero wants all.
	Limit int
	// Cursor continues an earlier Result that had More.
	Cursor string
	// Fields are the top-level fields kept in the values; empty keeps all.
	Fields []string
	// GroupBy groups rows by fields, and Aggregations are computed for each group.
	GroupBy      []string
	Aggregations []Aggregation
}

// Order is one criterion of an order.
type Order struct {
	Field      string
	Descending bool
}

// Aggregation is a function over the rows of a group: count, sum, min, max or avg.
type Aggregation struct {
	Func, Field string
}

// Result is the answer to a Query.
type Result struct {
	Records []Record
	// More says that there are further rows; Cursor, if it is set, continues behind these.
	More   bool
	Cursor string
	// Plan is how the rows were found; nil without Explain, and from a server that does not
	// know of plans.
	Plan *Plan
}

// Plan says how the rows of a query were found: by an index, by the keys that the query
// names, or by looking at all records ("index", "keys", "scan").
type Plan = protocol.QueryPlan

// encode returns the query object.
func (q Query) encode() (msgp.Raw, error) {
	object := map[string]any{}
	if len(q.Where) > 0 {
		object["where"] = q.Where
	}
	if len(q.Predicate) > 0 {
		object["predicate"] = q.Predicate
	}
	if len(q.Sort) > 0 {
		sort := make([]any, len(q.Sort))
		for i, o := range q.Sort {
			direction := "asc"
			if o.Descending {
				direction = "desc"
			}
			sort[i] = map[string]any{"field": o.Field, "direction": direction}
		}
		object["sort"] = sort
	}
	if q.Limit != 0 {
		object["limit"] = q.Limit
	}
	if q.Cursor != "" {
		object["cursor"] = q.Cursor
	}
	if len(q.GroupBy) > 0 {
		object["groupBy"] = q.GroupBy
		list := make([]any, len(q.Aggregations))
		for i, a := range q.Aggregations {
			list[i] = map[string]any{"func": a.Func, "field": a.Field}
			if a.Field == "" {
				list[i] = map[string]any{"func": a.Func}
			}
		}
		object["aggregations"] = list
	}
	if len(object) == 0 {
		return nil, nil
	}
	value, err := Encode(object)
	return msgp.Raw(value), err
}

// Find answers a query once.
func (m *Map) Find(ctx context.Context, q Query, opts ...ReadOption) (*Result, error) {
	object, err := q.encode()
	if err != nil {
		return nil, err
	}
	c, read := m.client, readOptionsOf(opts)
	k := c.newCall(protocol.KindQuerySub, m.name, func(id string) protocol.Message {
		return &protocol.QuerySub{
			QueryID: id, MapName: m.name, Query: object, Fields: q.Fields, Consistency: read.consistency(), Explain: read.explain,
		}
	})
	k.again = true
	answer, err := c.do(ctx, k)
	if !errors.Is(err, ErrRefused) {
		c.unsubscribe(k)
	}
	if err != nil {
		return nil, fmt.Errorf("query of map %q: %w", m.name, err)
	}
	resp := answer.(*protocol.QueryResp)
	return &Result{Records: records(resp), More: resp.HasMore, Cursor: resp.NextCursor, Plan: resp.Plan}, nil
}

// unsubscribe ends the live query that a request for rows has begun.
func (c *Client) unsubscribe(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && c.conn == k.conn {
		c.conn.postLocked(&protocol.QueryUnsub{QueryID: k.id})
	}
}

func records(m *protocol.QueryResp) []Record {
	list := make([]Record, len(m.Results))
	for i, row := range m.Results {
		list[i] = Record{Key: row.Key, Value: Value(row.Value)}
	}
	return list
}

// resultError is what is wrong with the answer to a query, nil if nothing is.
func resultError(m *protocol.QueryResp) (code protocol.Code, reason string) {
	switch {
	case m.Code == "QUERY_SNAPSHOT_OVERFLOW":
		return protocol.CodeUnavailable, "too many writes while the query was answered"
	case m.Error != "":
		return protocol.CodeMalformed, m.Error
	case m.CursorStatus == protocol.CursorExpired || m.CursorStatus == protocol.CursorInvalid:
		return protocol.CodeMalformed, "cursor is " + string(m.CursorStatus)
	default:
		return 0, ""
	}
}

// rowsLocked takes the answer to a query.
func (c *Client) rowsLocked(m *protocol.QueryResp) {
	code, reason := resultError(m)
	if f := c.follows[m.QueryID]; f != nil {
		if code != 0 {
			c.followFailedLocked(f, code, reason)
			return
		}
		f.beginLocked(m)
		return
	}
	k := c.pendingLocked(m.QueryID, protocol.KindQuerySub)
	switch {
	case k == nil:
	case code != 0:
		c.failLocked(k, code, reason, false)
	default:
		c.settleLocked(k, m, nil)
	}
}
