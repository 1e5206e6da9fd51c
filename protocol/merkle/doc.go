// Package merkle holds the hash trees by which clients and servers find out which
// records of a map differ.
//
// A tree has depth 3 and 16 children a node. The first twelve bits of a key's hash
// choose its leaf bucket; a bucket's hash is the sum of the mixed hashes of its
// items, and so is every node's of its children. Sums of leaf buckets add up, so the
// tree of a map is made from the buckets of all groups; hashes of inner nodes do not.
// The functions are those of the clients and must agree with them bit for bit.
package merkle
