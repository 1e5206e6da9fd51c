// Package bench is the load generator that ships with the server. It starts its own
// cluster as child processes, or uses a running one, drives it over WebSocket as
// clients do, and reports throughput and HDR latency percentiles beside a floor that
// is measured in the same run: the same Raft stack with an empty state machine and
// the same coalescing, proposed to without clients.
//
// Load is closed-loop by default: every connection waits for its acknowledgement.
// With a rate it is open-loop, and latency counts from the moment at which an
// operation should have been sent, so that a stall of the server shows.
package bench
