// Package transport is the client side of a node: one HTTP listener that carries
// WebSocket connections, health probes and metrics. Server binds early and answers
// the probes while the node is loading; it takes clients once Open gives it the
// cluster, and stops taking them when it drains.
//
// What the endpoints do is in the sub-packages: ws speaks the client protocol, auth
// verifies tokens, health holds the node's state.
package transport
