package query

import "errors"

// Errors of queries, by class. What wraps them names the cause for the client.
var (
	// ErrMalformed: the query object is not one. A repeat fails identically.
	ErrMalformed = errors.New("query is malformed")
	// ErrTooComplex: the query asks for more than its bounds allow.
	ErrTooComplex = errors.New("query is too complex")
	// ErrUnsupported: the query uses an operator that this server does not have.
	ErrUnsupported = errors.New("not implemented")
	// ErrTooCostly: a record would take more steps than one record may.
	ErrTooCostly = errors.New("a record takes too many steps of the query")
	// ErrTooManyGroups: the groups of the query are more than one answer holds.
	ErrTooManyGroups = errors.New("query has too many groups")
)
