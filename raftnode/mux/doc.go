// Package mux is the network between the nodes of a cluster: one listening port
// that carries the Raft streams of all groups and the calls between nodes.
//
// Open binds the port, Handle registers what this node answers, Start serves. Call
// runs a method on a peer over one multiplexed connection; CallAddr does so by
// address, for nodes that are not known yet. StreamLayer gives a Raft group its
// streams; Raft addresses are server ids, and an address book says where each id
// is reached. Every connection begins with a handshake that names the cluster and
// both ends, so a message cannot reach the wrong node, the wrong life of a node,
// or another cluster. With a secret, both ends authenticate and encrypt (TLS 1.3).
//
// All methods of Mux are safe for concurrent use. The package knows nothing about
// membership: who may join, and which ids are retired, is told to it. It does not
// retry calls, and it does not compress.
package mux
