// Package judge decides about the writes of clients what can be known before the
// cluster is asked, and what each client is owed afterwards: a refusal, or a place in
// the acknowledgement. It is shared by all ways in which writes arrive.
package judge
