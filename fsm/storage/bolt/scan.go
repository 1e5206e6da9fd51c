package bolt

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tidwall/btree"

	"github.com/quorate/quorate/fsm/storage"
)

// Scan implements storage.Reader.
func (r *reader) Scan(group uint32, section storage.Section, prefix, from string, fn func(string, []byte) bool) (err error) {
	s := scan{within: storage.Key{Section: section, Bytes: prefix}, first: storage.Key{Section: section, Bytes: max(prefix, from)}, fn: fn}
	defer faultsPanic()()
	defer guard(&err, &s.foreign)
	if s.b, err = r.current(group); err != nil {
		return fmt.Errorf("scan group %d: %w", group, err)
	}
	s.recent.begin(r.view, group, s.within, s.first)
	if err := s.run(); err != nil {
		return fmt.Errorf("scan group %d: %w", group, err)
	}
	return nil
}

// scan shows the items of one group below within, from first on, until fn returns false:
// those of a bucket, with the recent ones over them.
type scan struct {
	b             bucket
	recent        recent
	within, first storage.Key
	fn            func(key string, value []byte) bool
	// foreign tells that fn is running.
	foreign bool
	keys    texts
}

func (s *scan) deliver(key string, value []byte) (more bool) {
	s.foreign = true
	more = s.fn(key, value)
	s.foreign = false
	return more
}

func (s *scan) run() error {
	if s.b.b == nil {
		s.before(nil)
		return nil
	}
	prefix := appendKey(nil, s.within)
	length, start := -1, uint32(0)
	c := s.b.b.Cursor()
	for key, stored := c.Seek(appendKey(nil, s.first)); key != nil && bytes.HasPrefix(key, prefix); key, stored = c.Next() {
		if len(key) != length {
			length, start = len(key), s.b.keyStart(key)
		}
		value, err := s.b.openAfter(start, key, stored)
		if err != nil {
			return err
		}
		if s.recent.ok {
			hidden, more := s.before(key[1:])
			if !more {
				return nil
			}
			if hidden {
				continue
			}
		}
		if !s.deliver(s.keys.text(key[1:]), value) {
			return nil
		}
	}
	s.before(nil)
	return nil
}

// before shows the recent items up to key, or all of them if it is nil, and reports
// whether one of key was among them, which hides the bucket's.
func (s *scan) before(key []byte) (hidden, more bool) {
	for s.recent.ok && !hidden {
		item := s.recent.item
		if key != nil {
			switch strings.Compare(item.Key.Bytes, string(key)) {
			case 1:
				return false, true
			case 0:
				hidden = true
			}
		}
		s.recent.step()
		if item.Value != nil && !s.deliver(item.Key.Bytes, item.Value) {
			return hidden, false
		}
	}
	return hidden, true
}

// recent walks the layers of a view as one: of two items with a key it shows the newer
// one. The value of item is nil where it is deleted; ok is false at the end.
type recent struct {
	active, frozen layerCursor
	item           storage.Item
	ok             bool
}

func (r *recent) begin(v *view, group uint32, within, first storage.Key) {
	r.active.begin(v.active, group, within, first)
	r.frozen.begin(v.frozen, group, within, first)
	r.step()
}

func (r *recent) step() {
	r.ok = true
	switch a, f := &r.active, &r.frozen; {
	case !a.ok && !f.ok:
		r.ok = false
	case !f.ok || a.ok && before(a.item.Key, f.item.Key):
		r.item = a.item
		a.next(a.iter.Next)
	case !a.ok || before(f.item.Key, a.item.Key):
		r.item = f.item
		f.next(f.iter.Next)
	default:
		r.item = a.item
		a.next(a.iter.Next)
		f.next(f.iter.Next)
	}
}

// layerCursor is at an item of a group in a layer, below within. ok is false at the end,
// as in the zero value.
type layerCursor struct {
	iter   btree.IterG[storage.Item]
	within storage.Key
	item   storage.Item
	ok     bool
}

func (c *layerCursor) begin(l *layer, group uint32, within, first storage.Key) {
	if l == nil || l.groups[group] == nil {
		return
	}
	c.iter, c.within = l.groups[group].Iter(), within
	c.next(func() bool { return c.iter.Seek(storage.Item{Key: first}) })
}

// next moves on by what step does.
func (c *layerCursor) next(step func() bool) {
	if c.ok = step(); c.ok {
		c.item = c.iter.Item()
		c.ok = c.item.Key.Section == c.within.Section && strings.HasPrefix(c.item.Key.Bytes, c.within.Bytes)
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
