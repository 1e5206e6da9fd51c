// Package mirror has the leader of each data group write the group's records to the
// cluster's table in a database, a little later than the log commits them.
//
// Of a change only the key is remembered; what is stored under it is read from the state
// machine when it is written, so a key that changes often is written once. A new leader
// finds what its predecessors did not write by the log index that the table holds for the
// group. Nothing acknowledged depends on the table, unless the writer asked for it: see
// Progress.
package mirror
