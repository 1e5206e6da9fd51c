// Package postgres keeps the records of a cluster in a PostgreSQL table. The table is no
// replica's state: each replica has that in a store of its own. It is what the groups'
// leaders write a little later, and what a new cluster can begin with.
//
// Three tables belong together: the rows, one row that names the cluster which owns them
// and its claim, and one row for each group with the term of the leader that writes it and
// the log index up to which the rows are written. Every transaction of a leader locks the
// row of its group and compares term and claim, so that a deposed leader, a second cluster
// and a database that is not the one of before write nothing; see DESIGN.md of package fsm.
package postgres
