// Package fsm turns committed log entries into state, snapshots and change
// events, deterministically: equal logs give equal state, results and events on
// every replica.
//
// A Machine is the state of one Raft group. Apply changes it entry by entry and
// reads nothing but the entries and the state: no clock, no randomness, no
// environment. The state is an overlay of changed items over a storage.Store; a
// writebehind.Flusher, shared by all groups of the node, moves the changes there
// in consistent cuts, each with the mark of the log index it equals. After a crash
// the log is replayed from that mark.
//
// Two tables hold everything that grows with features: commands says how each
// kind of log command is applied, sections what each part of the state is. The
// formats, the crash argument and the lock order are in DESIGN.md.
package fsm
