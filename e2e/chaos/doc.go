// Package chaos runs a cluster of real processes through faults while clients work on it,
// and checks their histories.
//
// A run is a sequence of rounds on one cluster. In a round, clients of several workloads
// work on names of their own, while faults that the round's seed chooses strike processes
// and links. Then everything is mended, clients must get on, and when they have ended every
// node is read. Package check judges the histories; the replicas must be equal.
//
// A slow machine makes rounds longer and fails none: only what must never happen does, and
// a cluster that takes nothing for minutes although nothing is wrong any more.
package chaos
