package fsm

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
)

// Get returns a record, tombstones included, and whether there is one. The Value
// must not be modified. It sees every entry that Apply has returned from. Errors:
// ErrStopped, ErrClosed, and those of the store, storage.ErrCorrupt among them.
func (m *Machine) Get(mapName, key string) (protocol.Record, bool, error) {
	var scratch [256]byte
	value, err := m.value(appendPlace(scratch[:0], mapName, key))
	if err == nil && value == nil {
		return protocol.Record{}, false, nil
	}
	var rec stored
	if err == nil {
		rec, err = decodeRecord(value)
	}
	if err != nil {
		return protocol.Record{}, false, fmt.Errorf("get record: %w", m.noticed(err))
	}
	return rec.Record, true, nil
}

// value returns the bytes of a record that nobody modifies, nil if there is none.
func (m *Machine) value(key []byte) ([]byte, error) {
	m.mu.RLock()
	if m.err != nil {
		defer m.mu.RUnlock()
		return nil, m.err
	}
	if c := m.overlay.cells[storage.SectionRecords][string(key)]; c != nil {
		defer m.mu.RUnlock()
		return c.value, nil
	}
	// Opened under the lock: while the overlay lacks the item, the store has its
	// present value.
	reader, err := m.store.NewReader()
	m.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	stored, err := reader.Get(m.group, storage.Key{Section: storage.SectionRecords, Bytes: string(key)})
	if err != nil || stored == nil {
		return nil, err
	}
	return append([]byte{}, stored...), nil
}

// Scan calls fn for the records of a map whose keys are not below from, in key order,
// tombstones included, until fn returns false. It shows the state at index, which it returns, whatever is
// applied meanwhile; fn may keep what it is given but must not modify the Value.
// No lock is held while fn runs, but a view of the store is open: fn must not
// linger. Errors as in Get; records before a damaged one have been shown.
func (m *Machine) Scan(mapName, from string, fn func(key string, rec protocol.Record) bool) (index uint64, err error) {
	reader, dirty, index, err := m.capture()
	if err != nil {
		return 0, fmt.Errorf("scan map: %w", err)
	}
	defer reader.Close()
	prefix := mapPrefix(mapName)
	s := scan{mapName: mapName, prefix: prefix, dirty: dirty.under(storage.SectionKeys, prefix), fn: fn, reader: reader, group: m.group}
	s.records = dirty.latest(storage.SectionRecords, prefix)
	s.skip(prefix + from)
	err = reader.Scan(m.group, storage.SectionKeys, prefix, prefix+from, s.stored)
	if err == nil {
		s.finish()
		err = s.err
	}
	if err != nil {
		return index, fmt.Errorf("scan map: %w", m.noticed(err))
	}
	return index, nil
}

// capture takes a consistent view of the state: the store's and what lies over it.
func (m *Machine) capture() (storage.Reader, dirtyView, uint64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.captureLocked()
}

func (m *Machine) captureLocked() (storage.Reader, dirtyView, uint64, error) {
	if m.err != nil {
		return nil, dirtyView{}, 0, m.err
	}
	reader, err := m.store.NewReader()
	if err != nil {
		return nil, dirtyView{}, 0, err
	}
	return reader, m.overlay.view(), m.mark.Index, nil
}

// scan merges the stored keys of a map with the dirty ones, in key order, and shows the
// record of each. A dirty item hides the stored one.
type scan struct {
	mapName, prefix string
	// dirty is what is not shown yet, in key order, and records the dirty records.
	dirty   []storage.Item
	records map[string][]byte
	// reader holds the rest.
	reader storage.Reader
	group  uint32
	place  []byte
	fn     func(string, protocol.Record) bool
	// done is set when fn has had enough or err is set.
	done bool
	err  error
}

// skip passes over the dirty keys below the item key from.
func (s *scan) skip(from string) {
	i, _ := slices.BinarySearchFunc(s.dirty, from, func(it storage.Item, from string) int { return cmp.Compare(it.Key.Bytes, from) })
	s.dirty = s.dirty[i:]
}

// stored shows a stored key after the dirty ones before it.
func (s *scan) stored(key string, _ []byte) bool {
	for len(s.dirty) > 0 && s.dirty[0].Key.Bytes < key && !s.done {
		s.next()
	}
	switch {
	case s.done:
	case len(s.dirty) > 0 && s.dirty[0].Key.Bytes == key:
		s.next()
	default:
		s.show(key[len(s.prefix):])
	}
	return !s.done
}

// finish shows the dirty keys behind the last stored one.
func (s *scan) finish() {
	for len(s.dirty) > 0 && !s.done {
		s.next()
	}
}

// next shows the first dirty key, unless it is deleted.
func (s *scan) next() {
	it := s.dirty[0]
	s.dirty = s.dirty[1:]
	if it.Value != nil {
		s.show(it.Key.Bytes[len(s.prefix):])
	}
}

func (s *scan) show(key string) {
	s.place = appendPlace(s.place[:0], s.mapName, key)
	value, changed := s.records[string(s.place)]
	if !changed {
		var kept []byte
		if kept, s.err = s.reader.Get(s.group, storage.Key{Section: storage.SectionRecords, Bytes: string(s.place)}); s.err != nil {
			s.done = true
			return
		}
		value = slices.Clone(kept)
	}
	rec, err := decodeRecord(value)
	if err != nil {
		s.done, s.err = true, err
		return
	}
	s.done = !s.fn(key, rec.Record)
}
