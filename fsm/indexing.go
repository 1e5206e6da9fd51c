package fsm

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/quorate/quorate/fsm/index"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol/merkle"
)

// indexPage is how many records enter an index while Apply waits.
const indexPage = 2048

// mapIndex is an index with how far it is built. What is stored enters it from the moment
// when it is defined; what was there before does page by page.
type mapIndex struct {
	*index.Index
	// restart: the definition is older than the state in memory.
	restart bool
	// next is the place from which on records are to be entered, empty at the beginning; of
	// the builder only.
	next string
	// ready: every record is entered. processed counts those that were looked at.
	ready     atomic.Bool
	processed atomic.Int64
}

// define makes list the definitions in force; restart says that they are not new.
func (m *Machine) define(list []index.Definition, restart bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.defineLocked(list, restart)
	}
}

func (m *Machine) defineLocked(list []index.Definition, restart bool) {
	kept := map[string][]*mapIndex{}
	for _, d := range list {
		x := m.indexLocked(d.MapName, d.Attribute)
		if x == nil || x.Definition != d {
			x = &mapIndex{Index: index.New(d, &m.shared.usage), restart: restart}
		}
		kept[d.MapName] = append(kept[d.MapName], x)
	}
	for _, indexes := range m.indexes {
		for _, x := range indexes {
			if i := index.Find(list, x.MapName, x.Attribute); i < 0 || list[i] != x.Definition {
				x.Drop()
			}
		}
	}
	m.indexes = kept
}

// reindexLocked begins all indexes anew: the state is another one.
func (m *Machine) reindexLocked() {
	if m.shared == nil {
		return
	}
	var list []index.Definition
	for _, indexes := range m.indexes {
		for _, x := range indexes {
			list = append(list, x.Definition)
		}
	}
	m.defineLocked(nil, true)
	m.defineLocked(list, true)
	m.shared.Wake()
}

// indexLocked is the index of a map by an attribute, nil if there is none.
func (m *Machine) indexLocked(mapName, attribute string) *mapIndex {
	for _, x := range m.indexes[mapName] {
		if x.Attribute == attribute {
			return x
		}
	}
	return nil
}

// enter puts a record's new value in place of the old one; nil is no record. It is called
// under the machine's lock.
func (m *Machine) enter(mapName, key string, before, after []byte) {
	for _, x := range m.indexes[mapName] {
		x.Set(key, before, after)
	}
}

// buildPage enters the next records into the first index that is not ready, and reports
// whether there was one. Apply waits meanwhile, readers do not.
func (m *Machine) buildPage() (built bool, err error) {
	err = m.look(func(l *look) error {
		for _, indexes := range m.indexes {
			for _, x := range indexes {
				if !x.ready.Load() {
					built = true
					return l.build(x)
				}
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("build index: %w", err)
	}
	return built, nil
}

// build enters a page of stored records. Those that the store does not have as they are
// enter with the first page, and with each change.
func (l *look) build(x *mapIndex) error {
	prefix := mapPrefix(x.MapName)
	cells := l.machine.overlay.cells[storage.SectionRecords]
	if x.next == "" {
		for place, exists := range l.machine.overlay.dirtyKeys(storage.SectionRecords, prefix) {
			if exists {
				if err := x.take(place, cells[place].value); err != nil {
					return err
				}
			}
		}
		x.next = prefix
	}
	left, bad := indexPage, error(nil)
	err := l.reader.Scan(l.machine.group, storage.SectionRecords, prefix, x.next, func(place string, value []byte) bool {
		if left == 0 {
			x.next = strings.Clone(place)
			return false
		}
		left--
		if c := cells[place]; c != nil {
			value = c.value
		}
		x.processed.Add(1)
		bad = x.take(place, value)
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	if err == nil && left > 0 {
		x.ready.Store(true)
	}
	return err
}

// take enters the record at a place; a nil value is none.
func (x *mapIndex) take(place string, value []byte) error {
	if value == nil {
		return nil
	}
	_, key, err := splitPlace(place)
	if err != nil {
		return err
	}
	rec, err := decodeRecord(value)
	if err == nil {
		x.Set(key, nil, rec.Value)
	}
	return err
}

// mapPrefix is what the places and the listed keys of all records of a map begin with.
func mapPrefix(mapName string) string { return string(appendName(nil, mapName, "")) }

// IndexStat says how far an index of a group is built.
type IndexStat struct {
	index.Definition
	// Entries is what the index holds, Records how many keys the map has in the group, and
	// Processed how many were looked at since the building began.
	Entries, Records, Processed int
	// Ready: the index is built and used.
	Ready bool
	// Restart: the building began because the state in memory was lost or replaced, not
	// because the index was defined.
	Restart bool
}

// IndexStat returns how far the index of a map by an attribute is built; false if there is
// none.
func (m *Machine) IndexStat(mapName, attribute string) (IndexStat, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	x := m.indexLocked(mapName, attribute)
	if x == nil {
		return IndexStat{}, false
	}
	s := IndexStat{Definition: x.Definition, Entries: x.Len(), Processed: int(x.processed.Load()), Ready: x.ready.Load(), Restart: x.restart}
	if tree := m.trees.get(mapName, merkle.Records); tree != nil {
		for bucket := range uint16(merkle.Buckets) {
			s.Records += int(tree.At(bucket).Keys)
		}
	}
	s.Processed = min(s.Processed, s.Records)
	if s.Ready {
		s.Processed = s.Records
	}
	return s, true
}
