package partitions

import (
	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// Reader reads the applied state of one group, here or at its holders: it is a local or a
// *remote.Reader, which differ in how they look for the rows of a query. Indexes are log
// indexes of the state that was read.
type Reader interface {
	// AddLeaves adds the group's share of a hash tree to leaves.
	AddLeaves(mapName string, kind merkle.Kind, leaves *merkle.Leaves) (uint64, error)
	// Records calls fn with the records in some buckets that entries above since stored, in
	// order of buckets and keys, those of the first bucket below from left out, until fn
	// returns false; fn neither keeps them nor blocks.
	Records(mapName string, buckets []uint16, from string, since uint64, fn func(bucket uint16, key string, rec protocol.Record) bool) error
	// LeafSets calls fn with the keys of a leaf of an observed-remove map, Sets with single
	// keys in their order, in parts, until fn returns false. more: a part of the same key
	// follows.
	LeafSets(leaf fsm.Leaf, fn func(part protocol.OREntry) bool) error
	Sets(mapName string, keys []string, fn func(part protocol.OREntry, more bool) bool) error
	// ChangedBuckets returns the buckets that entries above since may have changed.
	ChangedBuckets(mapName string, since uint64) ([]uint16, uint64, error)
	// Tags returns what the group knows of tags, in their order.
	Tags(mapName string, tags []string) ([]fsm.TagState, error)
	// Counter returns the cells of a counter.
	Counter(name string) ([]command.Cell, uint64, error)
	// Horizon says how far tombstones are collected.
	Horizon() (fsm.Horizon, error)
}

// local is the Reader of a group that this node holds.
type local struct{ Replica }

// Records implements Reader.
func (l local) Records(mapName string, buckets []uint16, from string, since uint64, fn func(bucket uint16, key string, rec protocol.Record) bool) error {
	more := true
	for _, bucket := range buckets {
		err := l.LeafRecords(fsm.Leaf{Map: mapName, Bucket: bucket, From: from}, since, func(key string, rec protocol.Record) bool {
			more = fn(bucket, key, rec)
			return more
		})
		if err != nil || !more {
			return err
		}
		from = ""
	}
	return nil
}

// Sets implements Reader.
func (l local) Sets(mapName string, keys []string, fn func(part protocol.OREntry, more bool) bool) error {
	for _, key := range keys {
		tag := ""
		for more := true; more; {
			var part protocol.OREntry
			var err error
			if part, more, err = l.Set(mapName, key, tag); err != nil {
				return err
			}
			if !fn(part, more) {
				return nil
			}
			if more {
				tag = fsm.TagBehind(part)
			}
		}
	}
	return nil
}

// Tags implements Reader.
func (l local) Tags(mapName string, tags []string) ([]fsm.TagState, error) {
	states := make([]fsm.TagState, len(tags))
	for i, tag := range tags {
		state, err := l.Tag(mapName, tag)
		if err != nil {
			return nil, err
		}
		states[i] = state
	}
	return states, nil
}

// Horizon implements Reader.
func (l local) Horizon() (fsm.Horizon, error) { return l.Replica.Horizon(), nil }
