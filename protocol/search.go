package protocol

import "github.com/tinylib/msgp/msgp"

// SearchOptions tunes a full-text search.
type SearchOptions struct {
	// Limit is the number of results; absent is 10.
	Limit *uint32 `wire:"limit,optional"`
	// MinScore drops results below it.
	MinScore *float64 `wire:"minScore,optional"`
	// Boost weighs fields by name.
	Boost map[string]float64 `wire:"boost,optional"`
}

// Search is SEARCH: one full-text search.
type Search struct {
	RequestID string         `wire:"requestId"`
	MapName   string         `wire:"mapName"`
	Query     string         `wire:"query"`
	Options   *SearchOptions `wire:"options,optional"`
}

// Kind implements Message.
func (*Search) Kind() Kind { return KindSearch }

// Correlation is the request id.
func (m *Search) Correlation() string { return m.RequestID }

// SearchResult is one hit.
type SearchResult struct {
	Key   string   `wire:"key"`
	Value msgp.Raw `wire:"value"`
	// Score is above zero; results are in descending order of it.
	Score        float64  `wire:"score"`
	MatchedTerms []string `wire:"matchedTerms"`
}

// SearchResp is SEARCH_RESP: the answer to Search, and the first answer to
// SearchSub, whose subscription id is then in RequestID.
type SearchResp struct {
	RequestID string         `wire:"requestId"`
	Results   []SearchResult `wire:"results"`
	// TotalCount counts all matches, also those beyond the limit.
	TotalCount uint32 `wire:"totalCount"`
	Error      string `wire:"error,optional"`
}

// Kind implements Message.
func (*SearchResp) Kind() Kind { return KindSearchResp }

// SearchSub is SEARCH_SUB: a search that follows changes.
type SearchSub struct {
	SubscriptionID string         `wire:"subscriptionId"`
	MapName        string         `wire:"mapName"`
	Query          string         `wire:"query"`
	Options        *SearchOptions `wire:"options,optional"`
}

// Kind implements Message.
func (*SearchSub) Kind() Kind { return KindSearchSub }

// Correlation is the subscription id.
func (m *SearchSub) Correlation() string { return m.SubscriptionID }

// SearchUpdate is SEARCH_UPDATE: one change of a followed search.
type SearchUpdate struct {
	SubscriptionID string `wire:"subscriptionId"`
	Key            string `wire:"key"`
	// Value is empty, Score zero and MatchedTerms empty for ChangeLeave.
	Value        msgp.Raw   `wire:"value"`
	Score        float64    `wire:"score"`
	MatchedTerms []string   `wire:"matchedTerms"`
	ChangeType   ChangeType `wire:"changeType"`
}

// Kind implements Message.
func (*SearchUpdate) Kind() Kind { return KindSearchUpdate }

// SearchUnsub is SEARCH_UNSUB. It has no answer.
type SearchUnsub struct {
	SubscriptionID string `wire:"subscriptionId"`
}

// Kind implements Message.
func (*SearchUnsub) Kind() Kind { return KindSearchUnsub }

// Correlation is the subscription id.
func (m *SearchUnsub) Correlation() string { return m.SubscriptionID }
