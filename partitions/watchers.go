package partitions

import "sync"

// watchers are functions to be called after a change. The zero value has none. It is
// safe for concurrent use.
type watchers struct {
	mu  sync.Mutex
	set map[*func()]struct{}
}

// add registers fn, which must not block, until cancel is called.
func (w *watchers) add(fn func()) (cancel func()) {
	key := &fn
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.set == nil {
		w.set = map[*func()]struct{}{}
	}
	w.set[key] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.set, key)
	}
}

// call calls every registered function, outside the lock.
func (w *watchers) call() {
	w.mu.Lock()
	list := make([]func(), 0, len(w.set))
	for fn := range w.set {
		list = append(list, *fn)
	}
	w.mu.Unlock()
	for _, fn := range list {
		fn()
	}
}
