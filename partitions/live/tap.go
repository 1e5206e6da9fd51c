package live

import "github.com/quorate/quorate/fsm"

// tap is somebody who takes all changes.
type tap struct{ fn func(c *fsm.Changes) }

// Tap has fn take all changes from now on, in order per group, until cancel is called.
// Reset says that some are missing; with group 0, of every group. fn must neither block
// nor call the Hub; it may still run when cancel returns.
func (h *Hub) Tap(fn func(c *fsm.Changes)) (cancel func()) {
	t := &tap{fn: fn}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.taps == nil {
		h.taps = map[*tap]struct{}{}
	}
	h.taps[t] = struct{}{}
	h.subs.Add(1)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, ok := h.taps[t]; ok {
			delete(h.taps, t)
			h.subs.Add(-1)
		}
	}
}

// tap gives changes to those who take all.
func (h *Hub) tap(c *fsm.Changes) {
	h.mu.RLock()
	taps := make([]*tap, 0, len(h.taps))
	for t := range h.taps {
		taps = append(taps, t)
	}
	h.mu.RUnlock()
	for _, t := range taps {
		t.fn(c)
	}
}
