package bolt

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/tidwall/btree"
	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/fsm/storage"
)

// mergeFactor is how many items of the frozen layer are merged for each that is
// written, and mergeLeast the fewest for a Write: the merge ends before the active layer
// is full too. mergeMost is how many a transaction merges: each may rewrite a page of its
// own, and bbolt holds all pages of a transaction in memory until its end.
const (
	mergeFactor = 2
	mergeLeast  = 256
	mergeMost   = 4096
)

// Write implements storage.Store. The merge that it owes goes on in transactions of its
// own behind that of the batches.
func (s *Store) Write(batches []storage.Batch) error {
	if err := storage.CheckBatches(batches); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	owed := mergeLeast
	err := s.update("write", func(tx *bbolt.Tx) error {
		w := s.newWriter(tx)
		items := 0
		for _, b := range batches {
			if err := w.add(b); err != nil {
				return fmt.Errorf("group %d: %w", b.Group, err)
			}
			items += len(b.Items)
		}
		owed = max(mergeFactor*items, mergeLeast)
		return s.finish(w, min(owed, s.mergeMost))
	})
	for owed -= s.mergeMost; err == nil && owed > 0 && s.views.Load().latest.frozen != nil; owed -= s.mergeMost {
		err = s.update("merge", func(tx *bbolt.Tx) error { return s.finish(s.newWriter(tx), min(owed, s.mergeMost)) })
	}
	return err
}

// finish merges n items and makes what w built the latest view.
func (s *Store) finish(w *writer, n int) error {
	if err := w.merge(n); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	return s.publish(w.tx, w.next)
}

// writer carries out one Write: it appends to the journal, and builds the view that
// the commit leads to.
type writer struct {
	tx   *bbolt.Tx
	next *view
	// journal is the bucket of next.active; opened when the first chunk comes.
	journal bucket
	scratch []byte
}

// newWriter begins with the latest view, whose active layer is frozen when it is
// full and the merge of the previous one has ended.
func (s *Store) newWriter(tx *bbolt.Tx) *writer {
	next := *s.views.Load().latest
	if next.frozen == nil && next.active.bytes >= s.journalBytes {
		next.frozen, next.active, next.next = next.active, newLayer(next.active.number+1), position{}
	} else {
		active := *next.active
		active.groups = maps.Clone(active.groups)
		next.active = &active
	}
	return &writer{tx: tx, next: &next}
}

func (w *writer) add(batch storage.Batch) error {
	generation, err := generationOrNew(w.tx, batch.Group, batch.Mark)
	if err != nil || len(batch.Items) == 0 {
		return err
	}
	for rest := batch.Items; len(rest) > 0; {
		n, err := w.append(chunk{group: batch.Group, generation: generation, items: rest})
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	w.overlay(batch)
	return nil
}

// append writes one chunk, and returns how many of the items are in it.
func (w *writer) append(c chunk) (items int, err error) {
	active := w.next.active
	if w.journal.b == nil {
		name := journalName(active.number)
		if _, err := w.tx.CreateBucketIfNotExists(name); err != nil {
			return 0, err
		}
		w.journal = openBucket(w.tx, name)
		w.journal.b.FillPercent = 1 // it is only ever appended to
	}
	w.scratch, items = appendChunk(w.scratch[:0], c)
	active.chunks++
	active.bytes += len(w.scratch)
	return items, w.journal.put(binary.BigEndian.AppendUint64(nil, active.chunks), w.scratch)
}

// overlay puts the items of a batch into the active layer, which the previous view
// shares until then.
func (w *writer) overlay(batch storage.Batch) {
	groups := w.next.active.groups
	t := newTree()
	if shared := groups[batch.Group]; shared != nil {
		t = shared.Copy()
	}
	var hint btree.PathHint
	for _, it := range batch.Items {
		t.SetHint(it, &hint)
	}
	groups[batch.Group] = t
}

// merge moves the next items of the frozen layer, at most n, into their generations,
// and drops its journal when it was the last of them.
func (w *writer) merge(n int) error {
	frozen := w.next.frozen
	if frozen == nil {
		return nil
	}
	for _, group := range slices.Sorted(maps.Keys(frozen.groups)) {
		if group < w.next.next.group {
			continue
		}
		if group > w.next.next.group {
			w.next.next = position{group: group}
		}
		items := firstFrom(frozen.groups[group], w.next.next.key, n)
		if err := w.put(group, items); err != nil {
			return fmt.Errorf("group %d: %w", group, err)
		}
		if n -= len(items); n == 0 {
			// The item behind the last one: the order of keys is dense at its end.
			last := items[len(items)-1].Key
			w.next.next.key = storage.Key{Section: last.Section, Bytes: last.Bytes + "\x00"}
			return nil
		}
		w.next.next = position{group: group + 1}
	}
	w.next.frozen, w.next.next = nil, position{}
	return w.tx.DeleteBucket(journalName(frozen.number))
}

func (w *writer) put(group uint32, items []storage.Item) error {
	if len(items) == 0 {
		return nil
	}
	b, err := current(w.tx, group)
	if err != nil {
		return err
	}
	return b.putItems(items)
}

// firstFrom returns the first items from key on, at most n.
func firstFrom(t *tree, from storage.Key, n int) []storage.Item {
	items := make([]storage.Item, 0, min(n, t.Len()))
	t.Ascend(storage.Item{Key: from}, func(it storage.Item) bool {
		items = append(items, it)
		return len(items) < n
	})
	return items
}
