package protocol

import (
	"slices"
	"strings"

	"github.com/tinylib/msgp/msgp"
)

// Record is one last-write-wins record as it is stored, replicated and sent.
// A Value of nil (absent or MsgPack nil) is a tombstone: the key is deleted, and
// the record stays so that older writes keep losing against it.
type Record struct {
	// Value is one MsgPack value, kept as the client sent it and only decoded
	// where a query, an index or a processor looks inside.
	Value msgp.Raw
	// Timestamp decides merges.
	Timestamp Timestamp
	// TTLMillis hides the record from reads once Timestamp.Millis+TTLMillis lies
	// before the reader's clock. Zero means no expiry.
	TTLMillis int64
}

// IsTombstone reports whether r marks a deletion.
func (r Record) IsTombstone() bool {
	return len(r.Value) == 0 || (len(r.Value) == 1 && r.Value[0] == mnil)
}

// Expired reports whether r is hidden at nowMillis. At equality it is visible.
func (r Record) Expired(nowMillis int64) bool {
	return r.TTLMillis > 0 && r.Timestamp.Millis+r.TTLMillis < nowMillis
}

// Clone returns r in memory of its own.
func (r Record) Clone() Record {
	r.Value = slices.Clone(r.Value)
	r.Timestamp.NodeID = strings.Clone(r.Timestamp.NodeID)
	return r
}

// mnil is the MsgPack encoding of nil.
const mnil = 0xc0

// ORRecord is one value of an observed-remove map under its key, identified by
// Tag for good. Servers keep Tag and Timestamp exactly as the writer sent them.
type ORRecord struct {
	// Value is one MsgPack value as the client sent it. Empty means nil.
	Value msgp.Raw
	// Timestamp is the time of the add.
	Timestamp Timestamp
	// Tag identifies the add; opaque to servers.
	Tag string
	// TTLMillis is as in Record.
	TTLMillis int64
}

// OREntry is the state of one key of an observed-remove map in a leaf, a diff or a
// push. The tombstones of a client's push belong to its whole map.
type OREntry struct {
	Key        string     `wire:"key"`
	Records    []ORRecord `wire:"records"`
	Tombstones []string   `wire:"tombstones"`
}

// Size is about what e takes in a frame.
func (e OREntry) Size() int {
	const overhead = 96
	size := overhead + len(e.Key)
	for i := range e.Records {
		size += overhead + len(e.Records[i].Tag) + len(e.Records[i].Value)
	}
	for _, tag := range e.Tombstones {
		size += len(tag)
	}
	return size
}

// KeyedRecord is a record with its key, as leaves and deltas carry it.
type KeyedRecord struct {
	Key    string
	Record Record
}
