package fsm

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// adoptedName is the item of the group section which says that the records of the
// database are in the state.
const (
	adoptedName   = "adopted"
	adoptedFormat = 1
)

func applyDatabasePut(r *run, c command.Raw) (command.Result, error) {
	d, err := command.DecodeDatabasePut(c)
	if err != nil {
		return command.Result{}, err
	}
	next, refusal := r.cluster.PutDatabase(d)
	return r.document(next, refusal, system.DatabaseKey, func(s *system.State) []byte {
		return system.AppendDatabase(nil, *s.Database)
	})
}

// applyAdopt raises the greatest token, and notes the end of an adoption.
func applyAdopt(r *run, c command.Raw) (command.Result, error) {
	a, err := command.DecodeAdopt(c)
	if err != nil {
		return command.Result{}, err
	}
	m := r.machine
	if a.Token > m.locks.Fence() {
		m.locks.RestoreFence(a.Token)
		if err := r.saveLocks(); err != nil {
			return command.Result{}, err
		}
	}
	if !a.Complete || m.adopted {
		return r.unchanged(), nil
	}
	m.adopted = true
	return r.changed(), r.save(storage.Key{Section: storage.SectionGroup, Bytes: adoptedName}, []byte{adoptedFormat})
}

// Adopted reports whether the records that a database held before are in the state.
func (m *Machine) Adopted() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.adopted
}

// Fence is the greatest token of a lock that the group has given.
func (m *Machine) Fence() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.locks.Fence()
}

// Item is everything that maps of one name hold under one key.
type Item struct {
	Map, Key string
	// Record is the last-write-wins record, nil if there is none.
	Record *protocol.Record
	// Set is what the observed-remove map has; without records and tombstones if nothing.
	Set protocol.OREntry
	// Index is the greatest log index of an entry that stored something of it; zero when
	// there is nothing.
	Index uint64
	// RemovedMillis is, when nothing of the item is live, when the last of it was removed.
	RemovedMillis int64
}

// Exists reports whether there is anything, tombstones included.
func (it *Item) Exists() bool { return it.Index > 0 }

// Item returns what is stored under a key, and the log index of the state that it was
// read from. Errors as in Get.
func (m *Machine) Item(mapName, key string) (it Item, index uint64, err error) {
	it = Item{Map: mapName, Key: key, Set: protocol.OREntry{Key: key}}
	err = m.look(func(l *look) error {
		index = m.mark.Index
		place := appendPlace(nil, mapName, key)
		value, err := l.get(storage.SectionRecords, place)
		if err != nil {
			return err
		}
		live := false
		if value != nil {
			rec, err := decodeRecord(slices.Clone(value))
			if err != nil {
				return err
			}
			it.Record, it.Index, it.RemovedMillis = &rec.Record, rec.index, rec.removed
			live = !rec.IsTombstone()
		}
		if value, err = l.get(storage.SectionSets, place); err != nil || value == nil {
			return err
		}
		set, err := decodeSet(value)
		if err == nil {
			it.Index = max(it.Index, set.index)
			_, err = l.parts(mapName, key, "", value, func(part protocol.OREntry) bool {
				it.Set.Records = append(it.Set.Records, part.Records...)
				it.Set.Tombstones = append(it.Set.Tombstones, part.Tombstones...)
				return true
			})
		}
		if live || len(it.Set.Records) > 0 {
			it.RemovedMillis = 0
			return err
		}
		for i := 0; i < len(it.Set.Tombstones) && err == nil; i++ {
			var tag orTag
			if value, err = l.get(storage.SectionTags, appendName(nil, mapName, it.Set.Tombstones[i])); err == nil {
				tag, err = decodeTag(value)
				it.RemovedMillis = max(it.RemovedMillis, tag.removed)
			}
		}
		return err
	})
	return it, index, err
}

// Place is where a walk over the keys of a group stands. The zero Place is before all.
type Place struct {
	tree   treeID
	bucket uint16
	// from is the first key of the bucket that is not passed.
	from string
	// End is set behind the last key.
	End bool
}

// Name is a key of a map.
type Name struct{ Map, Key string }

// ChangedKeys returns keys of which something was stored after the entry since, those of
// records before those of sets, and where to go on. It returns at most limit keys of a
// bucket, which may be none. It reads buckets that changed only. Errors as in Get.
func (m *Machine) ChangedKeys(since uint64, at Place, limit int) (names []Name, next Place, err error) {
	err = m.look(func(l *look) (err error) {
		if next = m.changedBucket(since, at); next.End {
			return nil
		}
		section := storage.SectionRecords
		if next.tree.kind == merkle.Sets {
			section = storage.SectionSets
		}
		whole := true
		leaf := Leaf{Map: next.tree.mapName, Bucket: next.bucket, From: next.from}
		err = l.items(section, leaf, func(key string, value []byte) (bool, error) {
			if len(names) == limit {
				next.from, whole = key, false
				return false, nil
			}
			index, err := storedIndex(section, value)
			if err == nil && index > since {
				names = append(names, Name{leaf.Map, key})
			}
			return true, err
		})
		if whole {
			next.bucket, next.from = next.bucket+1, ""
		}
		return err
	})
	return names, next, err
}

func storedIndex(section storage.Section, value []byte) (uint64, error) {
	// Both formats have it behind the first byte.
	r := codec.NewReader(value)
	r.Byte()
	index := r.Uvarint()
	if err := r.Err(); err != nil {
		return 0, fmt.Errorf("read %s: %w: %w", section, storage.ErrCorrupt, err)
	}
	return index, nil
}

// changedBucket moves at to a bucket that changed after since, or to the end.
func (m *Machine) changedBucket(since uint64, at Place) Place {
	ids := make([]treeID, 0, len(m.trees.byID))
	for id := range m.trees.byID {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareTrees)
	i, found := slices.BinarySearchFunc(ids, at.tree, compareTrees)
	for ; i < len(ids); i++ {
		bucket, from := uint16(0), ""
		if found {
			bucket, from = at.bucket, at.from
		}
		found = false
		tree := m.trees.byID[ids[i]]
		for ; bucket < merkle.Buckets; bucket, from = bucket+1, "" {
			if tree.At(bucket).Changed > since {
				return Place{tree: ids[i], bucket: bucket, from: from}
			}
		}
	}
	return Place{End: true}
}

func compareTrees(a, b treeID) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.mapName, b.mapName))
}
