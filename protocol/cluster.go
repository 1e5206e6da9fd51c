package protocol

import "github.com/tinylib/msgp/msgp"

// The types of a ClusterSubRegister.
const (
	ClusterSubSearch = "SEARCH"
	ClusterSubQuery  = "QUERY"
)

// ClusterSubRegister is CLUSTER_SUB_REGISTER: the node that holds a client asks an
// owner of the map to follow a search or a query for it.
type ClusterSubRegister struct {
	SubscriptionID    string `wire:"subscriptionId"`
	CoordinatorNodeID string `wire:"coordinatorNodeId"`
	MapName           string `wire:"mapName"`
	// Type is ClusterSubSearch or ClusterSubQuery.
	Type           string         `wire:"type"`
	SearchQuery    string         `wire:"searchQuery,optional"`
	SearchOptions  *SearchOptions `wire:"searchOptions,optional"`
	QueryPredicate msgp.Raw       `wire:"queryPredicate,optional"`
	// QuerySort is a map of field to "asc" or "desc", in order of significance.
	QuerySort msgp.Raw `wire:"querySort,optional"`
}

// Kind implements Message.
func (*ClusterSubRegister) Kind() Kind { return KindClusterSubRegister }

// ClusterHit is one row of an owner's result.
type ClusterHit struct {
	Key          string   `wire:"key"`
	Value        msgp.Raw `wire:"value"`
	Score        *float64 `wire:"score,optional"`
	MatchedTerms []string `wire:"matchedTerms,optional"`
}

// ClusterSubAck is CLUSTER_SUB_ACK: an owner's answer to a registration.
type ClusterSubAck struct {
	SubscriptionID string       `wire:"subscriptionId"`
	NodeID         string       `wire:"nodeId"`
	Success        bool         `wire:"success"`
	Error          string       `wire:"error,optional"`
	InitialResults []ClusterHit `wire:"initialResults,optional"`
	TotalHits      *int64       `wire:"totalHits,optional"`
}

// Kind implements Message.
func (*ClusterSubAck) Kind() Kind { return KindClusterSubAck }

// ClusterSubUpdate is CLUSTER_SUB_UPDATE: a change that an owner has seen.
type ClusterSubUpdate struct {
	SubscriptionID string     `wire:"subscriptionId"`
	SourceNodeID   string     `wire:"sourceNodeId"`
	Key            string     `wire:"key"`
	Value          msgp.Raw   `wire:"value"`
	ChangeType     ChangeType `wire:"changeType"`
	// Timestamp is in milliseconds since 1970.
	Timestamp    int64    `wire:"timestamp"`
	Score        *float64 `wire:"score,optional"`
	MatchedTerms []string `wire:"matchedTerms,optional"`
}

// Kind implements Message.
func (*ClusterSubUpdate) Kind() Kind { return KindClusterSubUpdate }

// ClusterSubUnregister is CLUSTER_SUB_UNREGISTER.
type ClusterSubUnregister struct {
	SubscriptionID string `wire:"subscriptionId"`
}

// Kind implements Message.
func (*ClusterSubUnregister) Kind() Kind { return KindClusterSubUnregister }

// ClusterSearchOptions tunes one node's part of a search.
type ClusterSearchOptions struct {
	// Limit is 1 to 1000.
	Limit               uint32             `wire:"limit"`
	MinScore            *float64           `wire:"minScore,optional"`
	Boost               map[string]float64 `wire:"boost,optional"`
	IncludeMatchedTerms bool               `wire:"includeMatchedTerms,optional"`
	// AfterScore and AfterKey ask for the hits strictly after that position.
	AfterScore *float64 `wire:"afterScore,optional"`
	AfterKey   string   `wire:"afterKey,optional"`
}

// ClusterSearchReq is CLUSTER_SEARCH_REQ.
type ClusterSearchReq struct {
	RequestID     string               `wire:"requestId"`
	MapName       string               `wire:"mapName"`
	Query         string               `wire:"query"`
	Options       ClusterSearchOptions `wire:"options"`
	TimeoutMillis int64                `wire:"timeoutMs,optional"`
}

// Kind implements Message.
func (*ClusterSearchReq) Kind() Kind { return KindClusterSearchReq }

// ClusterSearchHit is one hit of one node.
type ClusterSearchHit struct {
	Key          string   `wire:"key"`
	Value        msgp.Raw `wire:"value"`
	Score        float64  `wire:"score"`
	MatchedTerms []string `wire:"matchedTerms,optional"`
}

// ClusterSearchResp is CLUSTER_SEARCH_RESP.
type ClusterSearchResp struct {
	RequestID string             `wire:"requestId"`
	NodeID    string             `wire:"nodeId"`
	Results   []ClusterSearchHit `wire:"results"`
	TotalHits int64              `wire:"totalHits"`
	// ExecutionTimeMs is in milliseconds, with fractions.
	ExecutionTimeMs float64 `wire:"executionTimeMs"`
	Error           string  `wire:"error,optional"`
}

// Kind implements Message.
func (*ClusterSearchResp) Kind() Kind { return KindClusterSearchResp }

// ClusterSearchSubscribe is CLUSTER_SEARCH_SUBSCRIBE.
type ClusterSearchSubscribe struct {
	SubscriptionID string         `wire:"subscriptionId"`
	MapName        string         `wire:"mapName"`
	Query          string         `wire:"query"`
	Options        *SearchOptions `wire:"options,optional"`
}

// Kind implements Message.
func (*ClusterSearchSubscribe) Kind() Kind { return KindClusterSearchSubscribe }

// ClusterSearchUnsubscribe is CLUSTER_SEARCH_UNSUBSCRIBE.
type ClusterSearchUnsubscribe struct {
	SubscriptionID string `wire:"subscriptionId"`
}

// Kind implements Message.
func (*ClusterSearchUnsubscribe) Kind() Kind { return KindClusterSearchUnsubscribe }

// ClusterSearchUpdate is CLUSTER_SEARCH_UPDATE.
type ClusterSearchUpdate struct {
	SubscriptionID string     `wire:"subscriptionId"`
	NodeID         string     `wire:"nodeId"`
	Key            string     `wire:"key"`
	Value          msgp.Raw   `wire:"value"`
	Score          float64    `wire:"score"`
	MatchedTerms   []string   `wire:"matchedTerms,optional"`
	ChangeType     ChangeType `wire:"changeType"`
}

// Kind implements Message.
func (*ClusterSearchUpdate) Kind() Kind { return KindClusterSearchUpdate }
