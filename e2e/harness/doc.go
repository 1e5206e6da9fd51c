// Package harness runs real quorate processes for tests.
//
// A Cluster starts, kills, pauses, moves and wipes Nodes, each a process with its own
// directory and addresses on loopback; with Config.Proxied their links can be cut. A
// Client speaks the WebSocket protocol and learns what became of each write. A Load
// is many clients that write at random and record it in a model.History.
//
// Helpers that cannot go on fail the test, so a Cluster belongs to the goroutine of
// its test; Client and Load work from any goroutine. Processes end with their test,
// also when it panics or is killed. Linux only.
package harness
