package protocol

import "github.com/tinylib/msgp/msgp"

// ConsistencyLinearizable is the value of a query's "consistency" that asks for an
// answer no older than any acknowledgement. It is an extension of this server.
const ConsistencyLinearizable = "linearizable"

// QuerySub is QUERY_SUB: answer the records of a map that match a query, then
// follow their changes. Sent again with the same id it replaces the older one.
type QuerySub struct {
	QueryID string
	MapName string
	// Query is the query object, a MsgPack map; empty stands for one without entries.
	Query msgp.Raw
	// Fields lists the top-level fields kept in every value; empty keeps all. A
	// list inside the query object is used when the message has none.
	Fields []string
	// Consistency is empty or ConsistencyLinearizable.
	Consistency string
	// Explain asks for the plan of the answer. It is an extension of this server.
	Explain bool
}

// Kind implements Message.
func (*QuerySub) Kind() Kind { return KindQuerySub }

// Correlation is the query id.
func (m *QuerySub) Correlation() string { return m.QueryID }

// QueryUnsub is QUERY_UNSUB: end a query. It has no answer.
type QueryUnsub struct {
	QueryID string `wire:"queryId"`
}

// Kind implements Message.
func (*QueryUnsub) Kind() Kind { return KindQueryUnsub }

// Correlation is the query id.
func (m *QueryUnsub) Correlation() string { return m.QueryID }

// CursorStatus says what became of the cursor of a query.
type CursorStatus string

// The cursor statuses.
const (
	CursorNone    CursorStatus = "none"    // no cursor was sent
	CursorValid   CursorStatus = "valid"   // accepted
	CursorExpired CursorStatus = "expired" // too old; results are empty
	CursorInvalid CursorStatus = "invalid" // of another query, or damaged; results are empty
)

// QueryResp is QUERY_RESP: the first answer to a QuerySub. Clients replace what
// they hold by its rows.
type QueryResp struct {
	QueryID string
	Results []QueryRow
	// NextCursor is left out when empty, HasMore when false, CursorStatus and the
	// rest when empty or zero.
	NextCursor     string
	HasMore        bool
	CursorStatus   CursorStatus
	MerkleRootHash uint32
	Error          string
	// Code is text here, such as QUERY_SNAPSHOT_OVERFLOW.
	Code string
	// Plan is nil unless the query asked for it.
	Plan *QueryPlan
}

// QueryPlan says how the rows of a query were found. It is an extension of this server.
type QueryPlan struct {
	// Kind is "index", "keys" (the filter names the only keys) or "scan".
	Kind string
	// Attribute and IndexType are those of the index, empty without one.
	Attribute, IndexType string
	// GroupsScanned and GroupsIndexed count the groups of keys that were looked through and
	// those read through the index.
	GroupsScanned, GroupsIndexed int64
	// Candidates counts the records that were looked at, Matched those of them that the
	// filter admits. Both are zero for a client that may read only some rows.
	Candidates, Matched int64
}

// QueryRow is one record of a query result.
type QueryRow struct {
	Key   string
	Value msgp.Raw
}

// Kind implements Message.
func (*QueryResp) Kind() Kind { return KindQueryResp }

// ChangeType says how a row moved in the result of a live query or search.
type ChangeType string

// The change types.
const (
	ChangeEnter  ChangeType = "ENTER"
	ChangeUpdate ChangeType = "UPDATE"
	ChangeLeave  ChangeType = "LEAVE"
)

// QueryUpdate is QUERY_UPDATE: one change of the result of a live query.
type QueryUpdate struct {
	QueryID string
	Key     string
	// Value is the new value; empty for ChangeLeave.
	Value      msgp.Raw
	ChangeType ChangeType
}

// Kind implements Message.
func (*QueryUpdate) Kind() Kind { return KindQueryUpdate }

// QuerySyncInit is QUERY_SYNC_INIT: a client tells which result it still holds.
// It has no answer.
type QuerySyncInit struct {
	QueryID  string `wire:"queryId"`
	RootHash uint32 `wire:"rootHash"`
}

// Kind implements Message.
func (*QuerySyncInit) Kind() Kind { return KindQuerySyncInit }

// Correlation is the query id.
func (m *QuerySyncInit) Correlation() string { return m.QueryID }
