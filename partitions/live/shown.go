package live

import "sync"

// shown is how far the log of each group has been shown to anybody. The zero value is ready.
type shown struct {
	mu      sync.Mutex
	indexes map[uint32]uint64
}

// Shown is the greatest log index of a group of which clients of this node may have been shown
// something: a state below it would take them back. It is safe for concurrent use.
func (h *Hub) Shown(group uint32) uint64 {
	h.shown.mu.Lock()
	defer h.shown.mu.Unlock()
	return h.shown.indexes[group]
}

// Show notes that the state of a group at index is shown. It is safe for concurrent use.
func (h *Hub) Show(group uint32, index uint64) {
	h.shown.mu.Lock()
	defer h.shown.mu.Unlock()
	if h.shown.indexes == nil {
		h.shown.indexes = map[uint32]uint64{}
	}
	h.shown.indexes[group] = max(h.shown.indexes[group], index)
}
