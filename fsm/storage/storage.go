// Package storage defines the durable home of the state machines of one node: a
// set of ordered key-value spaces, one per Raft group, each with a mark that says
// which log index its content equals. Implementations live in sub-packages; the
// suite in storagetest holds all of them to one behaviour.
//
// The store is never the only copy of acknowledged data: the Raft log is the
// write-ahead log, and entries after a group's mark are replayed into it.
package storage

import "fmt"

// Section names a part of a group's state. The numbers are on disk: never reused,
// never renumbered. Section 0 is invalid.
type Section uint8

// The sections.
const (
	SectionRecords Section = 1 // last-write-wins records, key: map name, bucket, key
	SectionDedup   Section = 2 // outcomes of commands that are not idempotent
	SectionSystem  Section = 3 // cluster documents, in the system group only
	SectionSets    Section = 4 // live records of observed-remove maps, key: map name, bucket, key
	SectionTags    Section = 5 // where a tag is, or that it is removed, key: map name, tag
	SectionRemoved Section = 6 // removed tags by key, key: map name, key, tag
	SectionKeys    Section = 7 // the keys of records in their own order, key: map name, key
	SectionGraves  Section = 8 // tombstones by when they came, key: millis, index, tree, map name, key or tag
	SectionGroup   Section = 9 // what the group knows of itself

	SectionLocks    Section = 10 // locks that are held, key: name
	SectionGateways Section = 11 // nodes whose connections hold locks or wait for them, key: run of the node
	SectionSettled  Section = 12 // outcomes of commands for locks
	SectionFences   Section = 13 // the greatest token of a lock that has written, key: name
	SectionCounters Section = 14 // counters, key: name
	SectionAdded    Section = 15 // outcomes of additions to counters

	// SectionLeaves is the hash trees of the maps, key: map name, kind, bucket. They
	// follow from records and sets, and are no part of Mark.Digest.
	SectionLeaves Section = 20

	// Sections is above every section.
	Sections = 22
)

// The greatest lengths of Key.Bytes and Item.Value that a Store takes.
const (
	MaxKeyBytes   = 32_000
	MaxValueBytes = 16 << 20
)

// Key addresses one item of a group: its section and the bytes below it, at most
// MaxKeyBytes. Items are ordered by section, then bytewise by Bytes.
type Key struct {
	Section Section
	Bytes   string
}

// Item is one key with its value, at most MaxValueBytes. A nil Value in a Batch
// deletes the key.
type Item struct {
	Key   Key
	Value []byte
}

// Mark says which state of a group the store holds. The zero Mark is an empty
// group to which nothing was ever applied.
type Mark struct {
	// Index and Term are those of the last log entry contained in the state.
	Index, Term uint64
	// Configuration is the encoded Raft configuration in force at Index, and
	// ConfigurationIndex the entry that set it.
	Configuration      []byte
	ConfigurationIndex uint64
	// Digest is the sum of ItemHash over all items of the group. It is equal on
	// every replica at equal Index.
	Digest uint64
	// Clock is the highest stamp that the group has applied, in milliseconds and
	// counter; a new leader stamps above it.
	ClockMillis, ClockCounter int64
}

// Batch is one consistent cut of a group: all items changed since the previous
// batch, and the mark of the state they lead to. A Store may keep the values and
// the mark's configuration, so they must not be modified after the call.
type Batch struct {
	Group uint32
	Items []Item
	Mark  Mark
}

// Reader is a consistent view of the whole store at one moment. It must be
// closed, soon: an open view keeps space from being reused. A Reader is for one
// goroutine; several Readers may be open at once, beside Write.
type Reader interface {
	// Mark is the mark of group in this view.
	Mark(group uint32) (Mark, error)
	// Get returns the value of key, nil if there is none. The slice is valid until
	// Close and must not be modified. A damaged value is ErrCorrupt.
	Get(group uint32, key Key) ([]byte, error)
	// Scan calls fn in key order for every item of the section whose key starts
	// with prefix and is not below from, until fn returns false. The key may be
	// kept; the value is valid until Close and must not be modified. A damaged item
	// ends the scan with ErrCorrupt.
	Scan(group uint32, section Section, prefix, from string, fn func(key string, value []byte) bool) error
	// Close releases the view.
	Close() error
}

// Replacer loads a whole new state of a group beside the present one.
type Replacer interface {
	// Put adds items to the new state.
	Put(items []Item) error
	// Commit makes the new state current together with its mark, in one
	// transaction, and drops the old one. Before it, nothing is visible.
	Commit(mark Mark) error
	// Abort drops the new state. After Commit it does nothing.
	Abort() error
}

// Store keeps the groups of one node. All methods are safe for concurrent use;
// writes are serialised.
type Store interface {
	// NewReader opens a view. It does not block on writes.
	NewReader() (Reader, error)
	// Write applies the batches, one per group at the most, with their marks, in
	// one transaction that is durable when Write returns. On error nothing of it
	// is visible; after an error of the medium the Store refuses further writes,
	// because what reached the medium is unknown.
	Write(batches []Batch) error
	// Replace starts loading a new state of group. One at a time per group, and
	// no Drop of the group meanwhile.
	Replace(group uint32) (Replacer, error)
	// Drop removes everything of group.
	Drop(group uint32) error
	// Meta returns the node-level document name, nil if it was never written.
	Meta(name string) ([]byte, error)
	// SetMeta durably writes the node-level document name.
	SetMeta(name string, value []byte) error
	// Durable reports whether content survives the end of the process.
	Durable() bool
	// Close waits for running calls and releases the store; every later call is
	// ErrClosed. Readers must have been closed before: Close may wait for them.
	Close() error
}

// String renders the section's name for logs and errors.
func (s Section) String() string {
	if int(s) < len(sectionNames) && sectionNames[s] != "" {
		return sectionNames[s]
	}
	return fmt.Sprintf("section(%d)", uint8(s))
}

var sectionNames = [...]string{
	SectionRecords: "records", SectionDedup: "dedup", SectionSystem: "system", SectionSets: "sets", SectionTags: "tags",
	SectionRemoved: "removed", SectionKeys: "keys", SectionGraves: "graves", SectionGroup: "group",
	SectionLocks: "locks", SectionGateways: "gateways", SectionSettled: "settled", SectionFences: "fences", SectionCounters: "counters",
	SectionAdded: "added", SectionLeaves: "leaves",
}
