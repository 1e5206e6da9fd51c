package fsm

import "github.com/quorate/quorate/fsm/storage"

// Group implements writebehind.Source.
func (m *Machine) Group() uint32 { return m.group }

// Seal implements writebehind.Source. A state that moved without a changed item
// makes an empty batch, which carries its mark to the store.
func (m *Machine) Seal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sealLocked()
}

// sealLocked ends the open batch at the present mark. It must be called between two
// entries.
func (m *Machine) sealLocked() {
	if m.err != nil || m.mark.Index == m.sealedIndex {
		return
	}
	m.overlay.seal(m.mark)
	m.sealedIndex = m.mark.Index
}

// Oldest implements writebehind.Source.
func (m *Machine) Oldest() (storage.Batch, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.overlay.sealed) == 0 {
		return storage.Batch{}, false
	}
	b := m.overlay.sealed[0]
	return storage.Batch{Group: m.group, Items: b.items, Mark: b.mark}, true
}

// Written implements writebehind.Source.
func (m *Machine) Written() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flushed = m.overlay.sealed[0].mark
	m.overlay.written()
}

// Flushed implements writebehind.Source: the mark of the state that the store
// holds.
func (m *Machine) Flushed() storage.Mark {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.flushed
}

// Pending implements writebehind.Source: the number of items that the store does
// not hold yet.
func (m *Machine) Pending() int { return int(m.overlay.pending.Load()) }
