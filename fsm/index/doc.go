// Package index keeps the keys of a map's records in the order of an attribute: the
// definitions of such indexes, as operators give them to the cluster, and the index itself,
// which follows from the records and is only in memory.
package index
