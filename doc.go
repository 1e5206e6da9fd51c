// Package quorate runs one node of a Quorate cluster inside a Go process: a
// real-time sync server that replicates CRDT maps with Raft and serves clients
// over WebSocket. The executable in cmd/quorate is a thin user of this package.
//
// A Server is built by New from a validated ServerConfig. Start binds the client
// listener and returns its port; from then on the probes answer. Serve recovers
// the node's data, forms or joins its cluster, serves until its context ends,
// then drains. Everything is wired: there is no part to plug in.
package quorate
