// Package ws serves clients over WebSocket: it upgrades requests, authenticates
// connections, decodes frames, hands writes and queries to the cluster through
// Backend, and sends verdicts, results and change events back.
//
// A Server owns all connections. Each connection has one reader goroutine, which
// also ends it, a writer goroutine while there is something to send, and up to 32
// tasks that wait for the cluster. Answers to writes leave in the order of their
// frames. Everything that a client can make grow is bounded, and at each bound the
// client is slowed, refused or disconnected, but never left with a silent gap.
//
// The package decides nothing about data: it neither merges nor stores.
package ws
