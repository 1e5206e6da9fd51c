// Package check decides whether histories of operations on a cluster agree with what is
// promised.
//
// A History holds what clients asked and learned, in the order in which operations ended,
// and writes it to a file. Each workload has one function that takes the operations and
// returns what is wrong with them. An operation whose outcome was never learned is open: it
// may take effect at any later time, or never.
package check
