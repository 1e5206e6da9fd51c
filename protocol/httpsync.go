package protocol

import (
	"reflect"

	"github.com/tinylib/msgp/msgp"
)

// HTTPSync is the body of POST /sync: what a client without a WebSocket sends and asks
// for in one round.
type HTTPSync struct {
	ClientID  string    `wire:"clientId"`
	ClientHLC Timestamp `wire:"clientHlc"`
	// Operations fail one by one, in ClientOp.Err.
	Operations []ClientOp    `wire:"operations,optional"`
	SyncMaps   []HTTPSyncMap `wire:"syncMaps,optional"`
	Queries    []HTTPQuery   `wire:"queries,optional"`
	Searches   []HTTPSearch  `wire:"searches,optional"`
}

// HTTPSyncMap asks for what changed in a map.
type HTTPSyncMap struct {
	MapName string `wire:"mapName"`
	// LastSyncTimestamp is the ServerSyncTimestamp of the latest delta, at first zero.
	LastSyncTimestamp Timestamp `wire:"lastSyncTimestamp"`
}

// HTTPQuery asks for the values of a map.
type HTTPQuery struct {
	QueryID string `wire:"queryId"`
	MapName string `wire:"mapName"`
	// Filter is a map of fields to the values that they must equal; anything else
	// asks for all records.
	Filter msgp.Raw `wire:"filter"`
	// Limit is nil for no limit.
	Limit  *int64 `wire:"limit,optional"`
	Offset int64  `wire:"offset,optional"`
	// Cursor continues an earlier result and counts more than Offset.
	Cursor string `wire:"cursor,optional"`
	// Consistency is empty or ConsistencyLinearizable. It is an extension of this server.
	Consistency string `wire:"consistency,optional"`
	// Query is a query object as in QuerySub, which must be met beside Filter; Limit and
	// Cursor take the place of its own. Keys asks for the keys of the rows too, Explain for
	// the plan of the answer. All are extensions of this server.
	Query   msgp.Raw `wire:"query,optional"`
	Keys    bool     `wire:"keys,optional"`
	Explain bool     `wire:"explain,optional"`
}

// HTTPSearch asks for a search.
type HTTPSearch struct {
	SearchID string   `wire:"searchId"`
	MapName  string   `wire:"mapName"`
	Query    string   `wire:"query"`
	Options  msgp.Raw `wire:"options"`
}

// HTTPSyncResponse is the answer to HTTPSync. Empty parts are left out.
type HTTPSyncResponse struct {
	ServerHLC     Timestamp          `wire:"serverHlc"`
	Ack           *HTTPAck           `wire:"ack,optional"`
	Deltas        []MapDelta         `wire:"deltas,optional"`
	QueryResults  []HTTPQueryResult  `wire:"queryResults,optional"`
	SearchResults []HTTPSearchResult `wire:"searchResults,optional"`
	Errors        []HTTPError        `wire:"errors,optional"`
}

// HTTPAck acknowledges operations as OpAck does.
type HTTPAck struct {
	LastID string `wire:"lastId"`
	// Results is left out if nil: every operation was accepted then.
	Results []AckResult `wire:"results,optional"`
}

// MapDelta is what changed in a map.
type MapDelta struct {
	MapName string        `wire:"mapName"`
	Records []DeltaRecord `wire:"records"`
	// ServerSyncTimestamp comes back with the next request; clients do not look inside.
	ServerSyncTimestamp Timestamp `wire:"serverSyncTimestamp"`
}

// DeltaRecord is one changed record.
type DeltaRecord struct {
	Key    string `wire:"key"`
	Record Record `wire:"record"`
	// EventType is OpPut or OpRemove.
	EventType OpType `wire:"eventType"`
}

// HTTPQueryResult holds the values of a query in its order, which without one is that of the keys.
type HTTPQueryResult struct {
	QueryID string     `wire:"queryId"`
	Results []msgp.Raw `wire:"results"`
	// Keys are those of the results, if the query asked for them.
	Keys []string `wire:"keys,optional"`
	// HasMore is nil unless the query had a limit.
	HasMore *bool `wire:"hasMore,optional"`
	// NextCursor is set when there are more.
	NextCursor string `wire:"nextCursor,optional"`
	// Plan is nil unless the query asked for it.
	Plan *QueryPlan `wire:"plan,optional"`
}

// HTTPSearchResult holds the hits of a search.
type HTTPSearchResult struct {
	SearchID   string     `wire:"searchId"`
	Results    []msgp.Raw `wire:"results"`
	TotalCount *int64     `wire:"totalCount,optional"`
}

// HTTPError is one thing that failed.
type HTTPError struct {
	Code    Code   `wire:"code"`
	Message string `wire:"message"`
	// Context is the id of the operation or query, or empty for the request as a whole.
	Context string `wire:"context,optional"`
}

func (op *ClientOp) readFrom(r *reader) { op.read(r) }

func (op *ClientOp) appendTo(dst []byte) []byte { return op.appendFields(newObject(dst)).buf }

// The schemas of the bodies of POST /sync.
var httpRequest, httpResponse = func() (req, resp *schema) {
	b := schemaBuilder{structs: map[reflect.Type]*schema{}}
	return b.schema(reflect.TypeFor[HTTPSync]()), b.schema(reflect.TypeFor[HTTPSyncResponse]())
}()

// DecodeHTTPSync reads the body of a POST /sync by the rules of Decode; the result
// aliases body in the same way. The error is a *DecodeError.
func DecodeHTTPSync(body []byte) (*HTTPSync, error) {
	m := new(HTTPSync)
	return m, decodeBody(httpRequest, body, fromClient, reflect.ValueOf(m).Elem())
}

// DecodeHTTPSyncResponse reads the answer to a POST /sync, for clients; see
// DecodeHTTPSync and DecodeAnswer.
func DecodeHTTPSyncResponse(body []byte) (*HTTPSyncResponse, error) {
	m := new(HTTPSyncResponse)
	return m, decodeBody(httpResponse, body, fromServer, reflect.ValueOf(m).Elem())
}

// AppendHTTPSync appends the body of a POST /sync, for clients.
func AppendHTTPSync(dst []byte, m *HTTPSync) []byte {
	return httpRequest.appendStruct(newObject(dst), reflect.ValueOf(m).Elem()).buf
}

// AppendHTTPSyncResponse appends the answer to a POST /sync.
func AppendHTTPSyncResponse(dst []byte, m *HTTPSyncResponse) []byte {
	return httpResponse.appendStruct(newObject(dst), reflect.ValueOf(m).Elem()).buf
}

func decodeBody(s *schema, body []byte, limit bounds, v reflect.Value) error {
	shape, err := guardWithin(body, limit)
	if err != nil {
		return &DecodeError{Err: err}
	}
	r := &reader{b: body[:shape.Size], odd: shape.HasExt || shape.HasOddKey}
	s.readStruct(r, v)
	return r.failure()
}
