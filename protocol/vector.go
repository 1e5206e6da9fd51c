package protocol

import "github.com/tinylib/msgp/msgp"

// VectorSearch is VECTOR_SEARCH: the nearest neighbours of a vector.
type VectorSearch struct {
	ID      string `wire:"id"`
	MapName string `wire:"mapName"`
	// IndexName is the indexed attribute; empty for the map's only vector index.
	IndexName string `wire:"indexName,optional"`
	// QueryVector holds little-endian float32 numbers.
	QueryVector Binary `wire:"queryVector"`
	K           uint32 `wire:"k"`
	// EfSearch is the breadth of the search; absent is twice K.
	EfSearch *uint32              `wire:"efSearch,optional"`
	Options  *VectorSearchOptions `wire:"options,optional"`
}

// VectorSearchOptions tunes a vector search.
type VectorSearchOptions struct {
	// IncludeValue is true when absent, IncludeVectors false.
	IncludeValue   *bool    `wire:"includeValue,optional"`
	IncludeVectors *bool    `wire:"includeVectors,optional"`
	MinScore       *float64 `wire:"minScore,optional"`
	// Filter is a predicate node that record values must match.
	Filter msgp.Raw `wire:"filter,optional"`
}

// Kind implements Message.
func (*VectorSearch) Kind() Kind { return KindVectorSearch }

// Correlation is the request id.
func (m *VectorSearch) Correlation() string { return m.ID }

// VectorResult is one neighbour.
type VectorResult struct {
	Key string `wire:"key"`
	// Score is greater for closer neighbours.
	Score float64  `wire:"score"`
	Value msgp.Raw `wire:"value,optional"`
	// Vector holds little-endian float32 numbers.
	Vector Binary `wire:"vector,optional"`
}

// VectorSearchResp is VECTOR_SEARCH_RESP.
type VectorSearchResp struct {
	ID      string         `wire:"id"`
	Results []VectorResult `wire:"results"`
	// TotalCandidates counts the candidates before filtering.
	TotalCandidates uint32 `wire:"totalCandidates"`
	SearchTimeMs    int64  `wire:"searchTimeMs"`
	Error           string `wire:"error,optional"`
}

// Kind implements Message.
func (*VectorSearchResp) Kind() Kind { return KindVectorSearchResp }
