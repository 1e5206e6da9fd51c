// Package memory is the Store of nodes that keep nothing on disk, and of
// simulations. Its state is one immutable view; a write builds the next view from
// it, sharing what did not change, so Readers never wait and never block a write.
package memory

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/quorate/quorate/fsm/storage"
)

// Config parameterises a Store. The zero value is a store that is lost with the
// process.
type Config struct {
	// Durable makes the Store report that its content survives the end of the
	// process. It is for simulations, in which the Store outlives the node: see
	// Reopen.
	Durable bool
}

// Store implements storage.Store in memory.
type Store struct {
	durable bool
	// writing serialises everything that replaces the view.
	writing sync.Mutex
	current atomic.Pointer[view]
	closed  atomic.Bool
}

var _ storage.Store = (*Store)(nil)

// view is one state of the store. It is never modified once published.
type view struct {
	groups map[uint32]group
	meta   map[string][]byte
}

// group is the state of one group within a view.
type group struct {
	items *btree.BTreeG[storage.Item]
	mark  storage.Mark
}

// New returns an empty Store.
func New(cfg Config) *Store {
	s := &Store{durable: cfg.Durable}
	s.current.Store(&view{})
	return s
}

// Reopen makes a closed Store usable again with the content it had, as opening
// the same file does for a store on disk.
func (s *Store) Reopen() { s.closed.Store(false) }

// NewReader implements storage.Store.
func (s *Store) NewReader() (storage.Reader, error) {
	if s.closed.Load() {
		return nil, fmt.Errorf("open view: %w", storage.ErrClosed)
	}
	return reader{view: s.current.Load()}, nil
}

// Write implements storage.Store.
func (s *Store) Write(batches []storage.Batch) error {
	if err := storage.CheckBatches(batches); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return s.update("write", func(v *view) {
		for _, b := range batches {
			next := group{items: v.itemsCopy(b.Group), mark: b.Mark}
			put(next.items, b.Items)
			v.groups[b.Group] = next
		}
	})
}

// Replace implements storage.Store.
func (s *Store) Replace(number uint32) (storage.Replacer, error) {
	if s.closed.Load() {
		return nil, fmt.Errorf("replace: %w", storage.ErrClosed)
	}
	return &replacer{store: s, number: number, items: newItems()}, nil
}

// Drop implements storage.Store.
func (s *Store) Drop(number uint32) error {
	return s.update("drop", func(v *view) { delete(v.groups, number) })
}

// Meta implements storage.Store.
func (s *Store) Meta(name string) ([]byte, error) {
	if s.closed.Load() {
		return nil, fmt.Errorf("read meta: %w", storage.ErrClosed)
	}
	return s.current.Load().meta[name], nil
}

// SetMeta implements storage.Store.
func (s *Store) SetMeta(name string, value []byte) error {
	kept := append([]byte{}, value...)
	return s.update("write meta", func(v *view) { v.meta[name] = kept })
}

// Durable implements storage.Store.
func (s *Store) Durable() bool { return s.durable }

// Close implements storage.Store. The content stays until the Store is garbage.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.closed.Store(true)
	return nil
}

// update publishes the view that change makes of a copy of the current one.
func (s *Store) update(op string, change func(*view)) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.closed.Load() {
		return fmt.Errorf("%s: %w", op, storage.ErrClosed)
	}
	old := s.current.Load()
	next := &view{groups: maps.Clone(old.groups), meta: maps.Clone(old.meta)}
	if next.groups == nil {
		next.groups, next.meta = map[uint32]group{}, map[string][]byte{}
	}
	change(next)
	s.current.Store(next)
	return nil
}

func newItems() *btree.BTreeG[storage.Item] {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

func less(a, b storage.Item) bool {
	if a.Key.Section != b.Key.Section {
		return a.Key.Section < b.Key.Section
	}
	return a.Key.Bytes < b.Key.Bytes
}

// itemsCopy returns a tree with the items of a group that may be modified without
// changing the group. It costs O(1); nodes are copied when they are first changed.
func (v *view) itemsCopy(number uint32) *btree.BTreeG[storage.Item] {
	if g, ok := v.groups[number]; ok {
		return g.items.Copy()
	}
	return newItems()
}

func put(tree *btree.BTreeG[storage.Item], items []storage.Item) {
	for _, it := range items {
		if it.Value == nil {
			tree.Delete(it)
		} else {
			tree.Set(it)
		}
	}
}

// replacer builds the next state of a group.
type replacer struct {
	store  *Store
	number uint32
	items  *btree.BTreeG[storage.Item]
}

// Put implements storage.Replacer.
func (r *replacer) Put(items []storage.Item) error {
	if err := storage.CheckItems(items); err != nil {
		return fmt.Errorf("replace: %w", err)
	}
	put(r.items, items)
	return nil
}

// Commit implements storage.Replacer.
func (r *replacer) Commit(mark storage.Mark) error {
	return r.store.update("replace", func(v *view) { v.groups[r.number] = group{items: r.items, mark: mark} })
}

// Abort implements storage.Replacer.
func (r *replacer) Abort() error { return nil }
