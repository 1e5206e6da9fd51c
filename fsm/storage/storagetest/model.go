package storagetest

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"time"

	"github.com/quorate/quorate/fsm/storage"
)

// model is what a store must hold: items by group, and the marks.
type model struct {
	items map[uint32]map[storage.Key]string
	marks map[uint32]storage.Mark
}

func (m *model) content(group uint32) string {
	var keys []storage.Key
	for k := range m.items[group] {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		if keys[i].Section != keys[j].Section {
			return keys[i].Section < keys[j].Section
		}
		return keys[i].Bytes < keys[j].Bytes
	})
	var b strings.Builder
	fmt.Fprintf(&b, "mark %+v\n", m.marks[group])
	for _, k := range keys {
		fmt.Fprintf(&b, "%d %q=%q\n", k.Section, k.Bytes, m.items[group][k])
	}
	return b.String()
}

func (m *model) apply(group uint32, items []storage.Item, mark storage.Mark) {
	if m.items[group] == nil {
		m.items[group] = map[storage.Key]string{}
	}
	for _, it := range items {
		if it.Value == nil {
			delete(m.items[group], it.Key)
		} else {
			m.items[group][it.Key] = string(it.Value)
		}
	}
	m.marks[group] = mark
}

func testModel(s *suite) {
	seed := s.backend.Seed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	s.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	m := &model{items: map[uint32]map[storage.Key]string{}, marks: map[uint32]storage.Mark{}}
	for n := uint64(1); n <= 150; n++ {
		group := uint32(rnd.IntN(3))
		switch step := rnd.IntN(20); {
		case step < 14:
			items := randomItems(rnd, rnd.IntN(30), true)
			s.write(storage.Batch{Group: group, Items: items, Mark: mark(n)})
			m.apply(group, items, mark(n))
		case step < 16:
			s.replaceRandomly(rnd, m, group, n)
		case step < 17:
			s.must(s.store.Drop(group))
			delete(m.items, group)
			delete(m.marks, group)
		case step < 18:
			s.reopen()
		default:
			s.expect(group, m.content(group))
		}
		if s.Failed() {
			s.Fatalf("after step %d", n)
		}
	}
	for group := range uint32(3) {
		s.expect(group, m.content(group))
	}
}

func (s *suite) replaceRandomly(rnd *rand.Rand, m *model, group uint32, n uint64) {
	r, err := s.store.Replace(group)
	s.must(err)
	first, second := randomItems(rnd, 2000, false), randomItems(rnd, 10, false)
	s.must(r.Put(first))
	s.must(r.Put(second))
	if rnd.IntN(2) == 0 {
		s.must(r.Abort())
		return
	}
	s.must(r.Commit(mark(n)))
	delete(m.items, group)
	m.apply(group, first, mark(n))
	m.apply(group, second, mark(n))
}

// randomItems returns up to n changes of distinct keys.
func randomItems(rnd *rand.Rand, n int, deletions bool) []storage.Item {
	var items []storage.Item
	seen := map[storage.Key]bool{}
	for range n {
		k := storage.Key{Section: storage.Section(1 + rnd.IntN(3)), Bytes: fmt.Sprintf("%x", rnd.IntN(1+n*4))}
		if seen[k] {
			continue
		}
		seen[k] = true
		if deletions && rnd.IntN(3) == 0 {
			items = append(items, storage.Item{Key: k})
		} else {
			items = append(items, storage.Item{Key: k, Value: fmt.Appendf([]byte{}, "%d", rnd.Uint32())})
		}
	}
	return items
}
