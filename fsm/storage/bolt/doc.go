// Package bolt is the Store of nodes with a disk: one bbolt file for all groups.
//
// bbolt keeps the file consistent over crashes but has no checksums for data, so
// every value carries a CRC-32C over the bucket's name, the key and the value: a
// damaged value is storage.ErrCorrupt, never wrong data. Damage in bbolt's own
// pages makes it panic or fault; calls turn that into storage.ErrCorrupt too.
//
// Writes go to a journal in the same file first and move to their places later, many
// at a time and in key order; see the folder fsm's DESIGN.md.
//
// The state of a group lies in one bucket per generation. Replacing the state
// fills the bucket of a new generation and switches to it in one transaction; the
// old one is emptied in the background, in small transactions, also after a crash.
package bolt
