// Package notice tells who waits for a lock or follows a counter that it changed. What it
// has become is read from the state machine, so a notice may come twice, late or for
// nothing, and several may come as one, but none is lost.
package notice

import (
	"sync"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
)

// Board hands out notices. The zero value is ready. It is safe for concurrent use.
type Board struct {
	// mu protects the fields below.
	mu sync.Mutex
	// named are the watchers of single names, all those of whole sections.
	named map[place]map[*Watcher]struct{}
	all   map[*Watcher]struct{}
}

type place struct {
	section storage.Section
	name    string
}

// Watcher gets notices until it is closed.
type Watcher struct {
	board *Board
	place place
	// C holds one element when something has changed since it was last empty.
	C chan struct{}
	// fn takes the notices of a watcher of everything.
	fn func(group uint32, section storage.Section, name string)
}

// Watch returns a watcher of one name in a section. The caller closes it.
func (b *Board) Watch(section storage.Section, name string) *Watcher {
	w := &Watcher{board: b, place: place{section, name}, C: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.named == nil {
		b.named = map[place]map[*Watcher]struct{}{}
	}
	if b.named[w.place] == nil {
		b.named[w.place] = map[*Watcher]struct{}{}
	}
	b.named[w.place][w] = struct{}{}
	return w
}

// Watched reports whether there is a watcher of one name in a section.
func (b *Board) Watched(section storage.Section, name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.named[place{section, name}]) > 0
}

// WatchAll calls fn for every change, and with section 0 when everything of a group may
// have changed. fn must neither block nor call the Board. The caller closes the result.
func (b *Board) WatchAll(fn func(group uint32, section storage.Section, name string)) *Watcher {
	w := &Watcher{board: b, fn: fn}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[*Watcher]struct{}{}
	}
	b.all[w] = struct{}{}
	return w
}

// Wake gives the watcher of a name a notice.
func (w *Watcher) Wake() {
	select {
	case w.C <- struct{}{}:
	default:
	}
}

// Close ends the notices. Calling it again does nothing.
func (w *Watcher) Close() {
	b := w.board
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, w)
	if set := b.named[w.place]; set != nil {
		if delete(set, w); len(set) == 0 {
			delete(b.named, w.place)
		}
	}
}

// Publish hands out the notices of c. It does not block.
func (b *Board) Publish(c *fsm.Changes) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.Reset {
		for w := range b.all {
			w.fn(c.Group, 0, "")
		}
		for _, set := range b.named {
			wake(set)
		}
		return
	}
	for i := range c.List {
		ch := &c.List[i]
		switch ch.Section {
		case storage.SectionLocks, storage.SectionGateways, storage.SectionCounters:
			for w := range b.all {
				w.fn(c.Group, ch.Section, ch.Key)
			}
			wake(b.named[place{ch.Section, ch.Key}])
		}
	}
}

func wake(set map[*Watcher]struct{}) {
	for w := range set {
		w.Wake()
	}
}
