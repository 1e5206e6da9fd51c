package fsm

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/quorate/quorate/fsm/storage"
)

// cellOverhead is what a cell costs beside key and value, for the cache's bound: the
// struct, its entry in the map, and rounding.
const cellOverhead = 220

// cell is one item in memory: dirty, or clean and cached.
type cell struct {
	key storage.Key
	// value is never modified in place; nil means that the item does not exist.
	value []byte
	// held tells whether the overlay's map has this cell.
	held bool
	// cut is the number of the batch with the item's latest change, at position
	// pos; zero when the store holds that change.
	cut uint64
	pos int
	// taken is the number of the last merge that took the cell; of the flusher only.
	taken uint64
	// prev and next link the clean cells.
	prev, next *cell
}

// batch collects the items changed since the previous cut, each once, in the order
// of their first change. cells[i] is the cell of items[i].
type batch struct {
	number uint64
	items  []storage.Item
	cells  []*cell
	// counted is the number of items that count for the batch size.
	counted int
	mark    storage.Mark
	// bytes are those of the cells.
	bytes int
	// leaves are the buckets of the hash trees that differ from the previous cut.
	leaves []storage.Item
}

// overlay is the part of a group's state that is in memory: everything the store
// does not hold yet, and some of what it does. Its methods need the machine's lock,
// for writing unless they say otherwise, except pending.
type overlay struct {
	// cells are those in memory, by section and the bytes of their keys.
	cells [storage.Sections]map[string]*cell
	// open takes changes; sealed are whole, oldest first, never modified.
	open   batch
	sealed []batch
	clean  cache
	// budget is shared with other machines.
	budget *Budget
	// pending is the number of items in open and sealed, pendingBytes what they take.
	pending, pendingBytes atomic.Int64
	// merges counts the merges; of the flusher only.
	merges uint64
}

func (o *overlay) reset() {
	for section := range o.cells {
		o.cells[section] = make(map[string]*cell)
	}
	o.open = batch{number: o.open.number + 1}
	o.sealed = nil
	o.budget.clean.Add(-int64(o.clean.bytes))
	o.budget.dirty.Add(-o.pendingBytes.Swap(0))
	o.clean = cache{budget: o.budget}
	o.pending.Store(0)
}

// keep adds a cell whose value the store holds to the cached ones.
func (o *overlay) keep(c *cell) {
	if !c.held {
		o.cells[c.key.Section][c.key.Bytes] = c
		c.held = true
	}
	o.clean.push(c)
	for o.budget.exceeded() && o.evictOldest() {
	}
}

// evictOldest gives up the clean cell that was unused for the longest time, and reports
// whether there was one.
func (o *overlay) evictOldest() bool {
	c := o.clean.oldest
	if c == nil {
		return false
	}
	o.clean.remove(c)
	delete(o.cells[c.key.Section], c.key.Bytes)
	c.held = false
	o.budget.evicted.Inc()
	return true
}

// grow counts bytes more of the open batch, or fewer.
func (o *overlay) grow(bytes int) {
	o.open.bytes += bytes
	o.pendingBytes.Add(int64(bytes))
	o.budget.dirty.Add(int64(bytes))
}

// set gives c a new value, nil to delete it, as a change of the open batch.
func (o *overlay) set(c *cell, value []byte) {
	if c.cut == o.open.number {
		o.grow(len(value) - len(c.value))
		c.value = value
		o.open.items[c.pos].Value = value
		return
	}
	switch {
	case !c.held:
		o.cells[c.key.Section][c.key.Bytes] = c
		c.held = true
	case c.cut == 0:
		o.clean.remove(c)
	}
	c.value, c.cut, c.pos = value, o.open.number, len(o.open.items)
	o.grow(cost(c))
	o.open.items = append(o.open.items, storage.Item{Key: c.key, Value: value})
	o.open.cells = append(o.open.cells, c)
	if sections[c.key.Section].counts {
		o.open.counted++
	}
	o.pending.Add(1)
}

// seal ends the open batch; mark is the state it leads to, with the changed leaves of
// its trees.
func (o *overlay) seal(mark storage.Mark, leaves []storage.Item) {
	o.open.mark, o.open.leaves = mark, leaves
	o.sealed = append(o.sealed, o.open)
	size := len(o.open.items)
	o.open = batch{
		number: o.open.number + 1,
		items:  make([]storage.Item, 0, size),
		cells:  make([]*cell, 0, size),
	}
}

// oldest returns the longest run of sealed batches from the oldest whose items are
// within limit together, but at least one batch. It needs the lock for reading only.
func (o *overlay) oldest(limit int) []batch {
	n, items := 0, 0
	for _, b := range o.sealed {
		if n > 0 && items+len(b.items) > limit {
			break
		}
		n++
		items += len(b.items)
	}
	return slices.Clone(o.sealed[:n])
}

// merge returns the latest change of each item in the batches, and of each leaf. A dirty item has one
// cell in all of them, in which number, new with every merge, marks what was taken.
func merge(batches []batch, number uint64) []storage.Item {
	n := 0
	for _, b := range batches {
		n += len(b.items)
	}
	items := make([]storage.Item, 0, n)
	for _, b := range slices.Backward(batches) {
		for i, c := range b.cells {
			if c.taken != number {
				c.taken = number
				items = append(items, b.items[i])
			}
		}
	}
	leaves := map[string]struct{}{}
	for _, b := range slices.Backward(batches) {
		for _, leaf := range b.leaves {
			if _, taken := leaves[leaf.Key.Bytes]; !taken {
				leaves[leaf.Key.Bytes] = struct{}{}
				items = append(items, leaf)
			}
		}
	}
	return items
}

// latest sorts items by key and keeps of each key the last one.
func latest(items []storage.Item) []storage.Item {
	slices.SortStableFunc(items, func(a, b storage.Item) int {
		return cmp.Or(cmp.Compare(a.Key.Section, b.Key.Section), strings.Compare(a.Key.Bytes, b.Key.Bytes))
	})
	kept := items[:0]
	for i, it := range items {
		if i+1 < len(items) && items[i+1].Key == it.Key {
			continue
		}
		kept = append(kept, it)
	}
	return kept
}

// written drops the oldest sealed batches, so many as cuts: the store holds them.
// Items that no later batch changed become clean.
func (o *overlay) written(cuts int) {
	for _, done := range o.sealed[:cuts] {
		o.clear(done)
	}
	o.sealed = slices.Delete(o.sealed, 0, cuts)
}

func (o *overlay) clear(done batch) {
	// First, so that what becomes clean is not counted twice.
	o.pendingBytes.Add(-int64(done.bytes))
	o.budget.dirty.Add(-int64(done.bytes))
	for _, c := range done.cells {
		if c.cut != done.number {
			continue
		}
		c.cut = 0
		if c.value == nil || !sections[c.key.Section].kept {
			delete(o.cells[c.key.Section], c.key.Bytes)
			c.held = false
			continue
		}
		o.keep(c)
	}
	o.pending.Add(-int64(len(done.items)))
}

// dirtyView is the dirty items at one moment. Nothing in it is modified later.
type dirtyView struct {
	sealed []batch
	open   []storage.Item
}

// view captures the dirty items. It needs the lock for reading only.
func (o *overlay) view() dirtyView {
	return dirtyView{sealed: slices.Clone(o.sealed), open: slices.Clone(o.open.items)}
}

// under returns the items of the view below prefix, the latest change of each,
// sorted by key.
func (v dirtyView) under(section storage.Section, prefix string) []storage.Item {
	var found []storage.Item
	take := func(items []storage.Item) {
		for _, it := range items {
			if it.Key.Section == section && strings.HasPrefix(it.Key.Bytes, prefix) {
				found = append(found, it)
			}
		}
	}
	for _, b := range v.sealed {
		take(b.items)
	}
	take(v.open)
	return latest(found)
}

// latest returns the dirty items below prefix with their latest values, by key.
func (v dirtyView) latest(section storage.Section, prefix string) map[string][]byte {
	found := map[string][]byte{}
	take := func(items []storage.Item) {
		for i := range items {
			if it := &items[i]; it.Key.Section == section && strings.HasPrefix(it.Key.Bytes, prefix) {
				found[it.Key.Bytes] = it.Value
			}
		}
	}
	for i := range v.sealed {
		take(v.sealed[i].items)
	}
	take(v.open)
	return found
}

// cache orders the clean cells by last use and counts their bytes.
type cache struct {
	// oldest and newest are the ends of the list; nil when it is empty.
	oldest, newest *cell
	bytes          int
	budget         *Budget
}

func cost(c *cell) int { return cellOverhead + len(c.key.Bytes) + len(c.value) }

func (l *cache) push(c *cell) {
	c.prev, c.next = l.newest, nil
	if l.newest == nil {
		l.oldest = c
	} else {
		l.newest.next = c
	}
	l.newest = c
	l.count(cost(c))
}

func (l *cache) remove(c *cell) {
	if c.prev == nil {
		l.oldest = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.newest = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
	l.count(-cost(c))
}

func (l *cache) count(bytes int) {
	l.bytes += bytes
	l.budget.clean.Add(int64(bytes))
}

// dirtyKeys returns the keys below prefix that the store does not hold as they are, and
// whether they exist. It needs the lock for reading only.
func (o *overlay) dirtyKeys(section storage.Section, prefix string) map[string]bool {
	var found map[string]bool
	take := func(items []storage.Item) {
		for i := range items {
			if it := &items[i]; it.Key.Section == section && strings.HasPrefix(it.Key.Bytes, prefix) {
				if found == nil {
					found = map[string]bool{}
				}
				found[it.Key.Bytes] = it.Value != nil
			}
		}
	}
	for i := range o.sealed {
		take(o.sealed[i].items)
	}
	take(o.open.items)
	return found
}
