// Package genesis is the single decision of a cluster's life: which of several
// empty nodes founds it. It holds the rules as values without clock, network or
// disk; package membership drives them.
//
// The nodes agree by Paxos with one value (Lamport, "Paxos Made Simple", 2001).
// Every node is an Acceptor whose state is on disk before it answers. Any node
// may run an Attempt. What Paxos takes for granted and a seed list does not give
// is a fixed set of acceptors: Assess derives it from the lists, and an acceptor
// takes part only in attempts whose view of the set equals its own. The argument
// why two attempts can never choose two founders is in the DESIGN.md of package
// membership.
package genesis
