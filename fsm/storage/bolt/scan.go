package bolt

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/fsm/storage"
)

// Scan implements storage.Reader.
func (r *reader) Scan(group uint32, section storage.Section, prefix, from string, fn func(string, []byte) bool) (err error) {
	foreign := false
	defer faultsPanic()()
	defer guard(&err, &foreign)
	b, err := r.current(group)
	if err != nil {
		return fmt.Errorf("scan group %d: %w", group, err)
	}
	within, first := storage.Key{Section: section, Bytes: prefix}, storage.Key{Section: section, Bytes: max(prefix, from)}
	m := merged{sources: []*source{
		{next: layerItems(r.view.active, group, within, first)},
		{next: layerItems(r.view.frozen, group, within, first)},
		{next: bucketItems(b, within, first)},
	}}
	for m.step() {
		foreign = true
		more := fn(m.item.Key.Bytes, m.item.Value)
		foreign = false
		if !more {
			return nil
		}
	}
	if m.err != nil {
		return fmt.Errorf("scan group %d: %w", group, m.err)
	}
	return nil
}

// source is one layer in a scan: next pulls its items in key order, and head is the
// one pulled last.
type source struct {
	next func() (item storage.Item, ok bool, err error)
	head storage.Item
	// fresh tells that head was not shown yet.
	fresh bool
}

// merged walks layers as one: of several items with a key, it shows the one of the
// first source, and of deleted ones none.
type merged struct {
	// sources are those that have not ended, newer layers first.
	sources []*source
	item    storage.Item
	err     error
}

// step moves to the next item. It returns false at the end, and when err is set.
func (m *merged) step() bool {
	for m.pull() {
		if len(m.sources) == 1 {
			s := m.sources[0]
			if m.item, s.fresh = s.head, false; m.item.Value != nil {
				return true
			}
			continue
		}
		least := m.sources[0]
		for _, s := range m.sources[1:] {
			if before(s.head.Key, least.head.Key) {
				least = s
			}
		}
		m.item, least.fresh = least.head, false
		for _, s := range m.sources {
			if s != least && s.head.Key == m.item.Key {
				s.fresh = false
			}
		}
		if m.item.Value != nil {
			return true
		}
	}
	return false
}

// pull makes every head fresh and lets go of the sources that ended. It returns false
// when none is left, and when err is set.
func (m *merged) pull() bool {
	for i := 0; i < len(m.sources); {
		s, ok := m.sources[i], true
		if !s.fresh {
			s.head, ok, m.err = s.next()
			s.fresh = true
		}
		switch {
		case m.err != nil:
			return false
		case ok:
			i++
		default:
			m.sources = slices.Delete(m.sources, i, i+1)
		}
	}
	return len(m.sources) > 0
}

// layerItems pulls the items of a layer that lie within a prefix, from first on.
func layerItems(l *layer, group uint32, within, first storage.Key) func() (storage.Item, bool, error) {
	if l == nil || l.groups[group] == nil {
		return noItems
	}
	iter := l.groups[group].Iter()
	started := false
	return func() (storage.Item, bool, error) {
		ok := false
		if started {
			ok = iter.Next()
		} else {
			ok, started = iter.Seek(storage.Item{Key: first}), true
		}
		if !ok {
			return storage.Item{}, false, nil
		}
		it := iter.Item()
		return it, it.Key.Section == within.Section && strings.HasPrefix(it.Key.Bytes, within.Bytes), nil
	}
}

func noItems() (storage.Item, bool, error) { return storage.Item{}, false, nil }

// bucketItems is layerItems of the bucket of a generation.
func bucketItems(b bucket, within, first storage.Key) func() (storage.Item, bool, error) {
	if b.b == nil {
		return noItems
	}
	c := b.b.Cursor()
	prefix := appendKey(nil, within)
	started := false
	var keys texts
	return func() (storage.Item, bool, error) {
		var key, stored []byte
		if started {
			key, stored = c.Next()
		} else {
			key, stored = c.Seek(appendKey(nil, first))
			started = true
		}
		if key == nil || !bytes.HasPrefix(key, prefix) {
			return storage.Item{}, false, nil
		}
		value, err := b.open(key, stored)
		return storage.Item{Key: storage.Key{Section: storage.Section(key[0]), Bytes: keys.text(key[1:])}, Value: value}, err == nil, err
	}
}

// textBlock is how many bytes of keys are allocated at a time, and so the most that a
// caller who keeps one key keeps alive.
const textBlock = 2048

// texts makes strings that share allocations. The zero value is ready to use.
type texts struct{ block strings.Builder }

func (t *texts) text(b []byte) string {
	if t.block.Cap()-t.block.Len() < len(b) {
		t.block.Reset()
		t.block.Grow(max(textBlock, len(b)))
	}
	start := t.block.Len()
	t.block.Write(b)
	return t.block.String()[start:]
}
