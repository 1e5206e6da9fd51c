// Package memnet is a network in memory: named hosts, listeners and byte streams
// with the semantics of net.Conn, for simulations and fast tests. Each directed
// link between two hosts has its own latency, jitter, throughput and rate of
// random resets, and can be cut in one or both directions; a host can be crashed.
//
// Network is the wire and its faults; Host is the view of one machine and is what
// the code under test dials and listens with. All methods are safe for concurrent
// use. Every wait is a channel operation, so the package works in virtual time
// inside a testing/synctest bubble; a Network must not be shared between bubbles.
//
// It models streams, not packets: bytes are never reordered or silently lost. What
// a lossy line does to a TCP stream shows as latency, stalls and resets.
package memnet
