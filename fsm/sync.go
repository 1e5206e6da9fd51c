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
	if tree := m.trees.get(mapName, kind); tree != nil {
		tree.AddTo(leaves)
	}
	return m.mark.Index, nil
}

// MapNames lists the maps that have or had keys, in order.
func (m *Machine) MapNames() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	names := make([]string, 0, len(m.trees.byID))
	for id := range m.trees.byID {
		names = append(names, id.mapName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Leaf is a part of a map: its keys in a bucket, those below From left out; and with Tag,
// which only sets have, of the key From its records and the removed tags below Tag.
type Leaf struct {
	Map    string
	Bucket uint16
	From   string
	Tag    string
}

// MaxTags is the number of removed tags in a part of a set at most.
const MaxTags = 1024

// Behind is what follows a part of a set in the leaf.
func (l Leaf) Behind(part protocol.OREntry) Leaf {
	l.From, l.Tag = part.Key+"\x00", ""
	if len(part.Tombstones) > 0 {
		l.From, l.Tag = part.Key, TagBehind(part)
	}
	return l
}

// TagBehind is the first removed tag that can follow a part of a set.
func TagBehind(part protocol.OREntry) string { return part.Tombstones[len(part.Tombstones)-1] + "\x00" }

// lookWork is how many records, or values and removed tags of sets, are read before entries
// that wait are applied. Keys are the clients' choice, so that one leaf may hold all of a map.
const lookWork = 4096

// LeafRecords calls fn with the records of a leaf that entries above since stored,
// tombstones included, in key order, until it returns false. fn must neither keep nor
// modify a record; see protocol.Record.Clone. It reads the store and holds up Apply
// meanwhile, for lookWork records at a time: fn must not block. A leaf of more is not of one
// state. Errors as in Get.
func (m *Machine) LeafRecords(leaf Leaf, since uint64, fn func(key string, rec protocol.Record) bool) error {
	for more := true; more; {
		more = false
		left := lookWork
		err := m.look(func(l *look) error {
			return l.items(storage.SectionRecords, leaf, func(key string, value []byte) (bool, error) {
				if left == 0 {
					leaf.From, more = key, true
					return false, nil
				}
				left--
				rec, err := decodeRecord(value)
				if err != nil || rec.index <= since {
					return true, err
				}
				return fn(key, rec.Record), nil
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
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
	tree := m.trees.get(mapName, merkle.Records)
	for bucket := range uint16(merkle.Buckets) {
		if tree != nil && tree.At(bucket).Changed > since {
			buckets = append(buckets, bucket)
		}
	}
	return buckets, m.mark.Index, nil
}

// LeafSets calls fn with the keys of a leaf of an observed-remove map, with their records
// and removed tags, in key order, until it returns false. A key with many removed tags comes
// in parts: its records and the first MaxTags of them, in the order of their bytes, then
// more of them. fn may keep the parts. It reads the store and holds up Apply meanwhile, as
// LeafRecords does. Errors as in Get.
func (m *Machine) LeafSets(leaf Leaf, fn func(part protocol.OREntry) bool) error {
	for more := true; more; {
		more = false
		left := lookWork
		err := m.look(func(l *look) error {
			return l.items(storage.SectionSets, leaf, func(key string, value []byte) (bool, error) {
				tag := ""
				if key == leaf.From {
					tag = leaf.Tag
				}
				return l.parts(leaf.Map, key, tag, value, func(part protocol.OREntry) bool {
					if !fn(part) {
						return false
					}
					if left -= 1 + len(part.Records) + len(part.Tombstones); left <= 0 {
						leaf, more = leaf.Behind(part), true
					}
					return !more
				})
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// parts calls fn with the parts of a set that is stored as value, from a tag on, until it
// returns false, and reports whether it did not.
func (l *look) parts(mapName, key, tag string, value []byte, fn func(part protocol.OREntry) bool) (bool, error) {
	for more := true; more; {
		var part protocol.OREntry
		var err error
		if part, more, err = l.part(mapName, key, tag, value); err != nil {
			return false, err
		}
		if tag != "" && len(part.Tombstones) == 0 {
			break
		}
		if !fn(part) {
			return false, nil
		}
		if more {
			tag = TagBehind(part)
		}
	}
	return true, nil
}

// Set returns a part of one key of an observed-remove map, and whether more follows: its
// records and first removed tags; with tag, no records and the removed tags from tag on. It
// is empty if there is no such key. Otherwise as LeafSets.
func (m *Machine) Set(mapName, key, tag string) (part protocol.OREntry, more bool, err error) {
	err = m.look(func(l *look) error {
		value, err := l.get(storage.SectionSets, appendPlace(nil, mapName, key))
		if part = (protocol.OREntry{Key: key}); err != nil || value == nil {
			return err
		}
		part, more, err = l.part(mapName, key, tag, value)
		return err
	})
	return part, more, err
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
	// latest is what changes returned last.
	latest changes
}

// changes are the items of a section under a prefix that the store lacks or has otherwise:
// with whether they exist, and those that do in order.
type changes struct {
	section storage.Section
	prefix  string
	items   map[string]bool
	exist   []string
}

// changes returns those under prefix. Parts of one key ask again and again.
func (l *look) changes(section storage.Section, prefix string) *changes {
	if c := &l.latest; c.section == section && c.prefix == prefix {
		return c
	}
	l.latest = changes{section: section, prefix: prefix, items: l.machine.overlay.dirtyKeys(section, prefix)}
	for key, exists := range l.latest.items {
		if exists {
			l.latest.exist = append(l.latest.exist, key)
		}
	}
	slices.Sort(l.latest.exist)
	return &l.latest
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
		return fmt.Errorf("read state: %w", m.noticed(err))
	}
	defer reader.Close()
	if err := fn(&look{machine: m, reader: reader}); err != nil {
		return fmt.Errorf("read state: %w", m.noticed(err))
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

// keys returns what follows prefix in the keys of the items under it, of those from a place
// on the first limit, in order.
func (l *look) keys(section storage.Section, prefix, from string, limit int) ([]string, error) {
	dirty := l.changes(section, prefix)
	var list []string
	err := l.reader.Scan(l.machine.group, section, prefix, prefix+from, func(key string, _ []byte) bool {
		if _, changed := dirty.items[key]; !changed {
			list = append(list, key[len(prefix):])
		}
		return len(list) < limit
	})
	if err != nil || len(dirty.items) == 0 {
		return list, err
	}
	at, _ := slices.BinarySearch(dirty.exist, prefix+from)
	for _, key := range dirty.exist[at:min(at+limit, len(dirty.exist))] {
		list = append(list, key[len(prefix):])
	}
	slices.Sort(list)
	return list[:min(len(list), limit)], nil
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

// part is a part of a key of an observed-remove map whose set is stored as value.
func (l *look) part(mapName, key, tag string, value []byte) (part protocol.OREntry, more bool, err error) {
	part.Key = key
	head := value
	if tag == "" {
		head = slices.Clone(value)
	}
	s, err := decodeSet(head)
	if err != nil {
		return part, false, err
	}
	if tag == "" {
		part.Records = s.records
	}
	if s.removed > 0 {
		part.Tombstones, err = l.keys(storage.SectionRemoved, string(removedPrefix(mapName, key)), tag, MaxTags+1)
	}
	if more = len(part.Tombstones) > MaxTags; more {
		part.Tombstones = part.Tombstones[:MaxTags]
	}
	return part, more, err
}
