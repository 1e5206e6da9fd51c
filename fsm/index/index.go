package index

import (
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/quorate/quorate/fsm/query"
)

// entryOverhead is about what an entry costs beside its bytes: its place in a node of the
// tree, which is two thirds full, and what the allocator adds.
const entryOverhead = 48

// Usage counts what indexes hold. It is safe for concurrent use; the zero value is ready.
type Usage struct{ Entries, Bytes atomic.Int64 }

// Index is one index over the records of a map that one group holds. An entry is the rank
// of the record's value (see package query), followed by the key of the record. Set is for
// one goroutine at a time; everything is safe for concurrent use beside it.
type Index struct {
	Definition
	path  query.Attribute
	usage *Usage

	// mu protects the fields below: taking a view changes the tree.
	mu    sync.Mutex
	tree  *btree.BTreeG[string]
	bytes int
}

// New returns an empty index that counts for usage.
func New(d Definition, usage *Usage) *Index {
	tree := btree.NewBTreeGOptions(func(a, b string) bool { return a < b }, btree.Options{NoLocks: true})
	return &Index{Definition: d, path: query.ParseAttribute(d.Attribute), usage: usage, tree: tree}
}

// Set puts the value after of a record in place of before; nil is no record. It may be
// called again with what it was called with, and with a before that was never entered.
// Neither value is kept.
func (x *Index) Set(key string, before, after []byte) {
	was, is := x.entry(key, before), x.entry(key, after)
	x.mu.Lock()
	defer x.mu.Unlock()
	if was != "" && was != is {
		if _, found := x.tree.Delete(was); found {
			x.countLocked(-1, was)
		}
	}
	if is != "" {
		if _, found := x.tree.Set(is); !found {
			x.countLocked(1, is)
		}
	}
}

// entry is the entry of a record, empty if it has none.
func (x *Index) entry(key string, value []byte) string {
	if value == nil {
		return ""
	}
	var room [128]byte
	b := x.path.AppendRank(room[:0], key, value)
	if x.Type == Hash && !query.Equatable(b) {
		return ""
	}
	return string(append(b, key...))
}

func (x *Index) countLocked(entries int, entry string) {
	bytes := entries * (len(entry) + entryOverhead)
	x.bytes += bytes
	x.usage.Entries.Add(int64(entries))
	x.usage.Bytes.Add(int64(bytes))
}

// Len is the number of entries.
func (x *Index) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.tree.Len()
}

// Drop gives up what the index holds; it is of no use then.
func (x *Index) Drop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.usage.Entries.Add(-int64(x.tree.Len()))
	x.usage.Bytes.Add(-int64(x.bytes))
	x.tree.Clear()
	x.bytes = 0
}

// View is what an index holds at one moment, whatever is set later. It is for one goroutine.
type View struct{ tree *btree.BTreeG[string] }

// View returns the present content. It takes constant time; a node of the tree that changes
// afterwards is copied once.
func (x *Index) View() View {
	x.mu.Lock()
	defer x.mu.Unlock()
	return View{x.tree.IsoCopy()}
}

// Count is the number of entries in spans, or more than limit if it is more than that.
func (v View) Count(spans []query.Span, limit int) (n int) {
	for _, span := range spans {
		v.tree.Ascend(span.From, func(entry string) bool {
			if entry >= span.To || n > limit {
				return false
			}
			n++
			return true
		})
	}
	return n
}

// Ascend calls fn with the keys of the entries in spans until it returns false, and reports
// whether it never did. The spans are gone through in their order, each from its beginning.
func (v View) Ascend(spans []query.Span, fn func(key string) bool) bool {
	more := true
	for _, span := range spans {
		v.tree.Ascend(span.From, func(entry string) bool {
			if entry >= span.To {
				return false
			}
			more = fn(entry[query.RankLen(entry):])
			return more
		})
		if !more {
			return false
		}
	}
	return true
}

// Descend is Ascend that goes through each span from its end.
func (v View) Descend(spans []query.Span, fn func(key string) bool) bool {
	more := true
	for _, span := range spans {
		v.tree.Descend(span.To, func(entry string) bool {
			if entry >= span.To {
				return true
			}
			if entry < span.From {
				return false
			}
			more = fn(entry[query.RankLen(entry):])
			return more
		})
		if !more {
			return false
		}
	}
	return true
}
