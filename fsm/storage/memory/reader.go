package memory

import (
	"strings"

	"github.com/quorate/quorate/fsm/storage"
)

// reader implements storage.Reader over one view.
type reader struct{ view *view }

// Mark implements storage.Reader.
func (r reader) Mark(number uint32) (storage.Mark, error) {
	return r.view.groups[number].mark, nil
}

// Get implements storage.Reader.
func (r reader) Get(number uint32, key storage.Key) ([]byte, error) {
	g, ok := r.view.groups[number]
	if !ok {
		return nil, nil
	}
	it, _ := g.items.Get(storage.Item{Key: key})
	return it.Value, nil
}

// Scan implements storage.Reader.
func (r reader) Scan(number uint32, section storage.Section, prefix, from string, fn func(string, []byte) bool) error {
	g, ok := r.view.groups[number]
	if !ok {
		return nil
	}
	first := storage.Item{Key: storage.Key{Section: section, Bytes: max(prefix, from)}}
	g.items.Ascend(first, func(it storage.Item) bool {
		if it.Key.Section != section || !strings.HasPrefix(it.Key.Bytes, prefix) {
			return false
		}
		return fn(it.Key.Bytes, it.Value)
	})
	return nil
}

// Close implements storage.Reader.
func (r reader) Close() error { return nil }
