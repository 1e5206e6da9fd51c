package raftnode

import (
	"sync"
	"time"
)

// Limits of installWatch.
const (
	installLoopCount  = 3
	installLoopWindow = time.Minute
)

// installWatch recognises a replica to which snapshots are sent over and over while
// its log gets nowhere.
type installWatch struct {
	mu    sync.Mutex // protects times
	times []time.Time
}

// installed notes a snapshot and reports whether they come in a loop.
func (w *installWatch) installed(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	recent := w.times[:0]
	for _, t := range w.times {
		if now.Sub(t) < installLoopWindow {
			recent = append(recent, t)
		}
	}
	w.times = append(recent, now)
	return len(w.times) > installLoopCount
}

// progressed notes that entries were applied: there is no loop.
func (w *installWatch) progressed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times = w.times[:0]
}
