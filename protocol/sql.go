package protocol

import "github.com/tinylib/msgp/msgp"

// CodeFeatureDisabled is the text code of an SQLQueryResp from a server that has
// no SQL.
const CodeFeatureDisabled = "FEATURE_DISABLED"

// SQLQuery is SQL_QUERY.
type SQLQuery struct {
	SQL     string `wire:"sql"`
	QueryID string `wire:"queryId"`
}

// Kind implements Message.
func (*SQLQuery) Kind() Kind { return KindSQLQuery }

// Correlation is the query id.
func (m *SQLQuery) Correlation() string { return m.QueryID }

// SQLQueryResp is SQL_QUERY_RESP. With an Error, Columns and Rows are empty.
type SQLQueryResp struct {
	QueryID string   `wire:"queryId"`
	Columns []string `wire:"columns"`
	// Rows holds one cell per column and row.
	Rows  [][]msgp.Raw `wire:"rows"`
	Error string       `wire:"error,optional"`
	// Code is empty or a text such as CodeFeatureDisabled.
	Code string `wire:"code,optional"`
}

// Kind implements Message.
func (*SQLQueryResp) Kind() Kind { return KindSQLQueryResp }
