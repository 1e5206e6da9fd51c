package bolt

import (
	"bytes"
	"fmt"
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
// one pulled last unless ok is false.
type source struct {
	next func() (item storage.Item, ok bool, err error)
	head storage.Item
	ok   bool
	// fresh tells that head was not shown yet.
	fresh bool
}

// merged walks layers as one: of several items with a key, it shows the one of the
// first source, and of deleted ones none.
type merged struct {
	sources []*source
	item    storage.Item
	err     error
}

// step moves to the next item. It returns false at the end, and when err is set.
func (m *merged) step() bool {
	for {
		var least *source
		for _, s := range m.sources {
			if !s.fresh {
				if s.head, s.ok, m.err = s.next(); m.err != nil {
					return false
				}
				s.fresh = true
			}
			if s.ok && (least == nil || before(s.head.Key, least.head.Key)) {
				least = s
			}
		}
		if least == nil {
			return false
		}
		m.item = least.head
		for _, s := range m.sources {
			if s.ok && s.head.Key == m.item.Key {
				s.fresh = false
			}
		}
		if m.item.Value != nil {
			return true
		}
	}
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
		return storage.Item{Key: storage.Key{Section: storage.Section(key[0]), Bytes: string(key[1:])}, Value: value}, err == nil, err
	}
}
