package raftnode

import (
	"sync"
	"sync/atomic"
)

// watermark is a log index that only rises, and that can be waited for. The zero
// value is ready.
type watermark struct {
	index atomic.Uint64

	mu sync.Mutex // protects raised, and orders changes of index
	// raised is closed at the next rise. Nil while nobody waits.
	raised chan struct{}
}

func (w *watermark) load() uint64 { return w.index.Load() }

// raise sets the index unless it is that high already.
func (w *watermark) raise(index uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if index <= w.index.Load() {
		return
	}
	w.index.Store(index)
	if w.raised != nil {
		close(w.raised)
		w.raised = nil
	}
}

// next returns the index and a channel that is closed when it rises.
func (w *watermark) next() (index uint64, raised <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.raised == nil {
		w.raised = make(chan struct{})
	}
	return w.index.Load(), w.raised
}
