package protocol

import "github.com/tinylib/msgp/msgp"

// The search methods that a hybrid search combines.
const (
	MethodExact    = "exact"
	MethodFullText = "fullText"
	MethodSemantic = "semantic"
)

// HybridQuery is what a hybrid search asks for.
type HybridQuery struct {
	MapName   string   `wire:"mapName"`
	QueryText string   `wire:"queryText"`
	Methods   []string `wire:"methods"`
	K         uint32   `wire:"k"`
	// QueryVector holds little-endian float32 numbers; if absent the server embeds
	// QueryText.
	QueryVector Binary `wire:"queryVector,optional"`
	// Predicate is a predicate node for the exact method.
	Predicate msgp.Raw `wire:"predicate,optional"`
	// IncludeValue is true when absent.
	IncludeValue *bool `wire:"includeValue,optional"`
	// MinScore is compared with the fused score.
	MinScore *float64 `wire:"minScore,optional"`
}

// HybridSearch is HYBRID_SEARCH: one search by several methods.
type HybridSearch struct {
	RequestID string `wire:"requestId"`
	HybridQuery
}

// Kind implements Message.
func (*HybridSearch) Kind() Kind { return KindHybridSearch }

// Correlation is the request id.
func (m *HybridSearch) Correlation() string { return m.RequestID }

// HybridResult is one fused hit.
type HybridResult struct {
	Key   string  `wire:"key"`
	Score float64 `wire:"score"`
	// MethodScores holds the score of each method that found the key.
	MethodScores map[string]float64 `wire:"methodScores"`
	Value        msgp.Raw           `wire:"value,optional"`
}

// HybridSearchResp is HYBRID_SEARCH_RESP: the answer to HybridSearch, and the
// first answer to HybridSearchSub, whose subscription id is then in RequestID.
type HybridSearchResp struct {
	RequestID    string         `wire:"requestId"`
	Results      []HybridResult `wire:"results"`
	SearchTimeMs int64          `wire:"searchTimeMs"`
	Error        string         `wire:"error,optional"`
}

// Kind implements Message.
func (*HybridSearchResp) Kind() Kind { return KindHybridSearchResp }

// HybridSearchSub is HYBRID_SEARCH_SUB: a hybrid search that follows changes.
type HybridSearchSub struct {
	SubscriptionID string `wire:"subscriptionId"`
	HybridQuery
}

// Kind implements Message.
func (*HybridSearchSub) Kind() Kind { return KindHybridSearchSub }

// Correlation is the subscription id.
func (m *HybridSearchSub) Correlation() string { return m.SubscriptionID }

// HybridSearchUpdate is HYBRID_SEARCH_UPDATE: one change of a followed search.
type HybridSearchUpdate struct {
	SubscriptionID string             `wire:"subscriptionId"`
	Key            string             `wire:"key"`
	Score          float64            `wire:"score"`
	MethodScores   map[string]float64 `wire:"methodScores"`
	ChangeType     ChangeType         `wire:"changeType"`
	Value          msgp.Raw           `wire:"value,optional"`
}

// Kind implements Message.
func (*HybridSearchUpdate) Kind() Kind { return KindHybridSearchUpdate }

// HybridSearchUnsub is HYBRID_SEARCH_UNSUB. It has no answer.
type HybridSearchUnsub struct {
	SubscriptionID string `wire:"subscriptionId"`
}

// Kind implements Message.
func (*HybridSearchUnsub) Kind() Kind { return KindHybridSearchUnsub }

// Correlation is the subscription id.
func (m *HybridSearchUnsub) Correlation() string { return m.SubscriptionID }

// HybridQuerySubscribe is HYBRID_QUERY_SUBSCRIBE: a live query with full-text
// conditions. Clients have no handler for any answer to it.
type HybridQuerySubscribe struct {
	SubscriptionID string   `wire:"subscriptionId"`
	MapName        string   `wire:"mapName"`
	Predicate      msgp.Raw `wire:"predicate,optional"`
	Where          msgp.Raw `wire:"where,optional"`
	// Sort is a map of field to "asc" or "desc", in order of significance.
	Sort   msgp.Raw `wire:"sort,optional"`
	Limit  *uint32  `wire:"limit,optional"`
	Cursor string   `wire:"cursor,optional"`
}

// Kind implements Message.
func (*HybridQuerySubscribe) Kind() Kind { return KindHybridQuerySubscribe }

// Correlation is the subscription id.
func (m *HybridQuerySubscribe) Correlation() string { return m.SubscriptionID }

// HybridQueryUnsubscribe is HYBRID_QUERY_UNSUBSCRIBE.
type HybridQueryUnsubscribe struct {
	SubscriptionID string `wire:"subscriptionId"`
}

// Kind implements Message.
func (*HybridQueryUnsubscribe) Kind() Kind { return KindHybridQueryUnsubscribe }

// Correlation is the subscription id.
func (m *HybridQueryUnsubscribe) Correlation() string { return m.SubscriptionID }
