// Package raftnode runs the Raft groups of one node: N hashicorp/raft instances
// behind one network port and one write-ahead log, guarded against the known
// faults of that library.
//
// A [Host] owns the groups. A [Group] is one replica: it coalesces proposals into
// log entries while it leads, applies committed entries to its [StateMachine],
// answers for its leadership and configuration, and restarts from the state that
// the machine flushed. The network (package mux), the log (package logstore) and
// the state machines (package fsm) are passed in.
//
// All exported methods are safe for concurrent use. Linearizable reads, placement
// and cluster membership are decided elsewhere; DESIGN.md explains the flows, the
// guards and their cost.
package raftnode
