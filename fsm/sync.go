package fsm

import (
	"fmt"
	"maps"
	"slices"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// AddLeaves adds the leaf buckets of this group's share of a map to leaves, and returns
// the log index of the state that they show. It reads no records. Errors: ErrStopped,
// ErrClosed.
func (m *Machine) AddLeaves(mapName string, kind merkle.Kind, leaves *merkle.Leaves) (index uint64, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.err != nil {
		return 0, fmt.Errorf("hash tree: %w", m.err)
	}
	if tree := m.trees[treeID{mapName, kind}]; tree != nil {
		tree.AddTo(leaves)
	}
	return m.mark.Index, nil
}

// Leaf is a part of a map: its keys in a bucket, those below From left out.
type Leaf struct {
	Map    string
	Bucket uint16
	From   string
}

// LeafRecords calls fn with the records of a leaf that entries above since stored,
// tombstones included, in key order, until it returns false. fn must neither keep nor
// modify a record; see protocol.Record.Clone. It reads the store and holds up Apply
// meanwhile: fn must not block. Errors as in Get.
func (m *Machine) LeafRecords(leaf Leaf, since uint64, fn func(key string, rec protocol.Record) bool) error {
	return m.look(func(l *look) error {
		return l.items(storage.SectionRecords, leaf, func(key string, value []byte) (bool, error) {
			rec, err := decodeRecord(value)
			if err != nil || rec.index <= since {
				return true, err
			}
			return fn(key, rec.Record), nil
		})
	})
}

// ChangedBuckets returns the buckets of a map's records that entries above since may
// have changed, in order, and the log index of the state that they show. It reads no
// records. Errors: ErrStopped, ErrClosed.
func (m *Machine) ChangedBuckets(mapName string, since uint64) (buckets []uint16, index uint64, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.err != nil {
		return nil, 0, fmt.Errorf("hash tree: %w", m.err)
	}
	tree := m.trees[treeID{mapName, merkle.Records}]
	for bucket := range uint16(merkle.Buckets) {
		if tree != nil && tree.At(bucket).Changed > since {
			buckets = append(buckets, bucket)
		}
	}
	return buckets, m.mark.Index, nil
}

// LeafSets calls fn with the keys of a leaf of an observed-remove map, with their records
// and removed tags, in key order, until it returns false. fn may keep them. It reads the
// store and holds up Apply meanwhile. Errors as in Get.
func (m *Machine) LeafSets(leaf Leaf, fn func(entry protocol.OREntry) bool) error {
	return m.look(func(l *look) error {
		return l.items(storage.SectionSets, leaf, func(key string, value []byte) (bool, error) {
			entry, err := l.entry(leaf.Map, key, value)
			return err == nil && fn(entry), err
		})
	})
}

// Set returns one key of an observed-remove map; without records and removed tags if
// there is no such key. Otherwise as LeafSets.
func (m *Machine) Set(mapName, key string) (entry protocol.OREntry, err error) {
	err = m.look(func(l *look) error {
		entry, err = l.set(mapName, key)
		return err
	})
	return entry, err
}

// Tag returns what the group knows of a tag of an observed-remove map. Errors as in Get.
func (m *Machine) Tag(mapName, tag string) (state TagState, err error) {
	err = m.look(func(l *look) error {
		value, err := l.get(storage.SectionTags, appendName(nil, mapName, tag))
		if err != nil {
			return err
		}
		t, err := decodeTag(value)
		state = t.state
		return err
	})
	return state, err
}

// look is a read of the present state, under the machine's lock for reading.
type look struct {
	machine *Machine
	reader  storage.Reader
}

// look calls fn with the state held still.
func (m *Machine) look(fn func(*look) error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.err != nil {
		return fmt.Errorf("read state: %w", m.err)
	}
	reader, err := m.store.NewReader()
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	defer reader.Close()
	if err := fn(&look{machine: m, reader: reader}); err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	return nil
}

// get returns the value of an item, nil if there is none; valid for as long as the
// look.
func (l *look) get(section storage.Section, key []byte) ([]byte, error) {
	if c := l.machine.overlay.cells[section][string(key)]; c != nil {
		return c.value, nil
	}
	return l.reader.Get(l.machine.group, storage.Key{Section: section, Bytes: string(key)})
}

// keys returns what follows prefix in the keys of the items under it, in order.
func (l *look) keys(section storage.Section, prefix string) ([]string, error) {
	dirty := l.machine.overlay.dirtyKeys(section, prefix)
	var list []string
	err := l.reader.Scan(l.machine.group, section, prefix, "", func(key string, _ []byte) bool {
		if _, changed := dirty[key]; !changed {
			list = append(list, key[len(prefix):])
		}
		return true
	})
	if err != nil || len(dirty) == 0 {
		return list, err
	}
	for key, exists := range dirty {
		if exists {
			list = append(list, key[len(prefix):])
		}
	}
	slices.Sort(list)
	return list, nil
}

// items calls fn for the items of a leaf in key order, with their keys in the map, until
// it returns false. The value is valid for as long as the look.
func (l *look) items(section storage.Section, leaf Leaf, fn func(key string, value []byte) (more bool, err error)) error {
	prefix := string(appendBucket(nil, leaf.Map, leaf.Bucket))
	changes := l.machine.overlay.dirtyKeys(section, prefix)
	dirty := slices.Sorted(maps.Keys(changes))
	more, bad := true, error(nil)
	give := func(key string, value []byte) bool {
		if key >= prefix+leaf.From {
			more, bad = fn(key[len(prefix):], value)
		}
		return more && bad == nil
	}
	// upTo gives the items in memory that come before key, or all.
	upTo := func(key string, all bool) bool {
		for len(dirty) > 0 && (all || dirty[0] < key) {
			next := dirty[0]
			dirty = dirty[1:]
			if changes[next] && !give(next, l.machine.overlay.cells[section][next].value) {
				return false
			}
		}
		return true
	}
	err := l.reader.Scan(l.machine.group, section, prefix, prefix+leaf.From, func(key string, value []byte) bool {
		if !upTo(key, false) {
			return false
		}
		_, changed := changes[key]
		return changed || give(key, value)
	})
	if err == nil && bad == nil && more {
		upTo("", true)
	}
	if err != nil {
		return err
	}
	return bad
}

// set reads one key of an observed-remove map.
func (l *look) set(mapName, key string) (protocol.OREntry, error) {
	value, err := l.get(storage.SectionSets, appendPlace(nil, mapName, key))
	if err != nil || value == nil {
		return protocol.OREntry{Key: key}, err
	}
	return l.entry(mapName, key, value)
}

// entry is a key of an observed-remove map whose set is stored as value.
func (l *look) entry(mapName, key string, value []byte) (protocol.OREntry, error) {
	s, err := decodeSet(slices.Clone(value))
	entry := protocol.OREntry{Key: key, Records: s.records}
	if err == nil && s.removed > 0 {
		entry.Tombstones, err = l.keys(storage.SectionRemoved, string(removedPrefix(mapName, key)))
	}
	return entry, err
}
