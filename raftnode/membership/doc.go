// Package membership brings a node into a cluster and keeps the cluster's shape:
// it decides once which of several empty nodes founds a cluster, lets nodes join,
// leave and come back under new addresses, notices silent ones, and moves replicas
// and leaderships to where the replicated table wants them.
//
// An Agent does this for one node. Run forms, joins or resumes and then works
// until its context ends. What the whole cluster must agree on is replicated by
// group 0 as system documents; only the leader of group 0 proposes them, always
// against the version that it read. A group's Raft configuration is changed by
// that group's leader only. DESIGN.md explains the rules and why they are safe.
//
// The package decides nothing about keys and partitions; which nodes should hold
// which group comes from Deps.Place.
package membership
