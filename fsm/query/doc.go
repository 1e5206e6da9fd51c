// Package query decides which records of a map a client's query asks for, and in which
// order. Compile checks a query object once; the Query that it returns matches records,
// compares their places in the result, groups them and cuts fields out of them. It is a
// pure package: no I/O, no clock, no state between calls.
//
// A Query is safe for concurrent use. Every record costs a bounded number of steps,
// whatever the query and the record are.
package query
