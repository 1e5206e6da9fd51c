package fsm

import (
	"slices"

	"github.com/quorate/quorate/fsm/storage"
)

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
	m.overlay.seal(m.mark, m.trees.seal())
	m.sealedIndex = m.mark.Index
}

// Oldest implements writebehind.Source. Items of later cuts replace those of
// earlier ones.
func (m *Machine) Oldest(limit int) (storage.Batch, int) {
	m.mu.RLock()
	sealed := m.overlay.oldest(limit)
	m.mu.RUnlock()
	switch len(sealed) {
	case 0:
		return storage.Batch{}, 0
	case 1:
		return storage.Batch{Group: m.group, Items: slices.Concat(sealed[0].items, sealed[0].leaves), Mark: sealed[0].mark}, 1
	}
	m.overlay.merges++
	return storage.Batch{Group: m.group, Items: merge(sealed, m.overlay.merges), Mark: sealed[len(sealed)-1].mark}, len(sealed)
}

// Written implements writebehind.Source.
func (m *Machine) Written(cuts int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flushed = m.overlay.sealed[cuts-1].mark
	m.overlay.written(cuts)
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

// PendingBytes implements writebehind.Source: what those items take in memory.
func (m *Machine) PendingBytes() int { return int(m.overlay.pendingBytes.Load()) }
