package fsm

import (
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
)

// Changes are the changes of one group by one Apply, in log order. Receivers must
// not modify them.
type Changes struct {
	Group uint32
	// Index is the last log index that Apply covered; changes of later entries have
	// greater indexes.
	Index uint64
	// Reset tells that the whole state was replaced by a snapshot at Index: what
	// changed is unknown, and List is empty.
	Reset bool
	List  []Change
}

// Change is one item that differs from before. Writes that lost their merge,
// repeats and bookkeeping are not changes.
type Change struct {
	// Index is the log index of the entry that made the change.
	Index   uint64
	Section storage.Section
	// Map and Key name the record; for cluster documents Map is empty and Key is
	// the document's key. For locks, gateways and counters Key is the name, and what it
	// has become is read from the machine.
	Map, Key string
	// Record is the record after the change; a tombstone for a deletion. Zero for
	// cluster documents.
	Record protocol.Record
	// Added is the record that a set of an observed-remove map has got or changed, and
	// Removed the tag of one that it lost. They are set for changes of sets only.
	Added   *protocol.ORRecord
	Removed string
	// Existed reports whether a live record was there before, and Old is its value. Expiry
	// is not judged.
	Existed bool
	Old     msgp.Raw
	// Origin names the connection that wrote, if any.
	Origin string
}
