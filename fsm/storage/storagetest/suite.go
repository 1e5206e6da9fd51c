// Package storagetest is the conformance suite of storage.Store: every backend
// passes the same tests, so that a state machine cannot tell them apart.
package storagetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/fsm/storage"
)

// Backend says how the suite gets at stores of one kind.
type Backend struct {
	// Open returns a new, empty store. The suite closes it.
	Open func(t *testing.T) storage.Store
	// Reopen returns the store with the content of s, which the suite has closed.
	Reopen func(t *testing.T, s storage.Store) storage.Store
	// Seed is that of the random operations; 0 takes a new one.
	Seed uint64
}

// Run runs the suite.
func Run(t *testing.T, b Backend) {
	tests := []struct {
		name string
		run  func(*suite)
	}{
		{"an empty store reads as empty", testEmpty},
		{"a write is visible with its mark", testWrite},
		{"groups are separate", testGroups},
		{"a reader does not see later writes", testView},
		{"a scan is ordered and bounded", testScan},
		{"invalid writes change nothing", testInvalid},
		{"a replacement shows at once and whole", testReplace},
		{"an aborted replacement leaves nothing", testAbort},
		{"a dropped group is empty and usable", testDrop},
		{"documents are kept", testMeta},
		{"content survives reopening", testReopen},
		{"a closed store refuses", testClosed},
		{"readers beside writes see whole writes", testConcurrent},
		{"random operations equal a plain map", testModel},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := &suite{T: t, backend: b, store: b.Open(t)}
			defer func() { s.must(s.store.Close()) }()
			tc.run(s)
		})
	}
}

// suite is one test with its store.
type suite struct {
	*testing.T
	backend Backend
	store   storage.Store
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) reopen() {
	s.Helper()
	s.must(s.store.Close())
	s.store = s.backend.Reopen(s.T, s.store)
}

func (s *suite) reader() storage.Reader {
	s.Helper()
	r, err := s.store.NewReader()
	s.must(err)
	return r
}

// content is everything of a group as one text.
func content(t *testing.T, r storage.Reader, group uint32) string {
	t.Helper()
	mark, err := r.Mark(group)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "mark %+v\n", mark)
	for section := storage.Section(1); section <= 4; section++ {
		err := r.Scan(group, section, "", "", func(key string, value []byte) bool {
			fmt.Fprintf(&b, "%d %q=%q\n", section, key, value)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func (s *suite) content(group uint32) string {
	s.Helper()
	r := s.reader()
	defer r.Close()
	return content(s.T, r, group)
}

func (s *suite) expect(group uint32, want string) {
	s.Helper()
	if got := s.content(group); got != want {
		s.Errorf("group %d holds\n%s want\n%s", group, got, want)
	}
}

func key(section storage.Section, bytes string) storage.Key {
	return storage.Key{Section: section, Bytes: bytes}
}

func item(section storage.Section, bytes, value string) storage.Item {
	return storage.Item{Key: key(section, bytes), Value: []byte(value)}
}

func deletion(section storage.Section, bytes string) storage.Item {
	return storage.Item{Key: key(section, bytes)}
}

// mark is a mark with every field set from n.
func mark(n uint64) storage.Mark {
	return storage.Mark{
		Index: n, Term: n + 1, Configuration: fmt.Append(nil, "conf", n), ConfigurationIndex: n - 1,
		Digest: n << 60, ClockMillis: int64(n) * 1000, ClockCounter: -int64(n),
	}
}

func (s *suite) write(batches ...storage.Batch) {
	s.Helper()
	s.must(s.store.Write(batches))
}

func batch(group uint32, index uint64, items ...storage.Item) storage.Batch {
	return storage.Batch{Group: group, Items: items, Mark: mark(index)}
}

func testEmpty(s *suite) {
	s.expect(0, fmt.Sprintf("mark %+v\n", storage.Mark{}))
	r := s.reader()
	defer r.Close()
	if v, err := r.Get(3, key(1, "k")); v != nil || err != nil {
		s.Errorf("Get = %q, %v", v, err)
	}
	if v, err := s.store.Meta("m"); v != nil || err != nil {
		s.Errorf("Meta = %q, %v", v, err)
	}
}

func testWrite(s *suite) {
	s.write(batch(1, 5, item(1, "a", "1"), item(2, "b", ""), item(1, "c", "3")))
	s.write(batch(1, 6, item(1, "a", "new"), deletion(1, "c"), deletion(1, "never")))
	s.expect(1, fmt.Sprintf("mark %+v\n1 \"a\"=\"new\"\n2 \"b\"=\"\"\n", mark(6)))
	r := s.reader()
	defer r.Close()
	for _, tc := range []struct {
		key  storage.Key
		want []byte
	}{
		{key(1, "a"), []byte("new")},
		{key(2, "b"), []byte{}},
		{key(1, "b"), nil},
		{key(1, "c"), nil},
		{key(1, strings.Repeat("x", storage.MaxKeyBytes+1)), nil},
	} {
		got, err := r.Get(1, tc.key)
		if err != nil || !bytes.Equal(got, tc.want) || (got == nil) != (tc.want == nil) {
			s.Errorf("Get(%s, %.10q) = %q, %v; want %q", tc.key.Section, tc.key.Bytes, got, err, tc.want)
		}
	}
}

func testGroups(s *suite) {
	s.write(batch(0, 1, item(1, "k", "zero")), batch(7, 9, item(1, "k", "seven")), batch(1<<31, 2))
	s.expect(0, fmt.Sprintf("mark %+v\n1 \"k\"=\"zero\"\n", mark(1)))
	s.expect(7, fmt.Sprintf("mark %+v\n1 \"k\"=\"seven\"\n", mark(9)))
	s.expect(1<<31, fmt.Sprintf("mark %+v\n", mark(2)))
	s.expect(1, fmt.Sprintf("mark %+v\n", storage.Mark{}))
}

func testView(s *suite) {
	s.write(batch(1, 1, item(1, "a", "1"), item(1, "b", "2")))
	old := s.reader()
	before := content(s.T, old, 1)
	s.write(batch(1, 2, item(1, "a", "new"), deletion(1, "b"), item(1, "c", "3")))
	if got := content(s.T, old, 1); got != before {
		s.Errorf("the view changed from\n%s to\n%s", before, got)
	}
	s.must(old.Close())
	if s.content(1) == before {
		s.Error("a new view shows the old state")
	}
}

func testScan(s *suite) {
	keys := []string{"", "\x00", "a", "a\x00", "aa", "ab", "ab\xff", "b", "\xff", "\xff\xff"}
	var items []storage.Item
	for i, k := range keys {
		items = append(items, item(2, k, fmt.Sprint(i)))
	}
	slices.Reverse(items)
	s.write(batch(1, 1, append(items, item(1, "other", "x"), item(3, "", "y"))...))
	r := s.reader()
	defer r.Close()
	for _, tc := range []struct {
		prefix, from string
		limit        int
		want         []string
	}{
		{"", "", 100, keys},
		{"", "ab", 100, keys[5:]},
		{"", "ab", 2, keys[5:7]},
		{"a", "", 100, keys[2:7]},
		{"a", "aa", 100, keys[4:7]},
		{"a", "b", 100, nil},
		{"b", "a", 100, keys[7:8]},
		{"\xff", "", 100, keys[8:]},
		{"zzz", "", 100, nil},
	} {
		var got []string
		err := r.Scan(1, 2, tc.prefix, tc.from, func(k string, _ []byte) bool {
			got = append(got, k)
			return len(got) < tc.limit
		})
		if err != nil || !slices.Equal(got, tc.want) {
			s.Errorf("Scan(%q from %q, %d) = %q, %v; want %q", tc.prefix, tc.from, tc.limit, got, err, tc.want)
		}
	}
}

func testInvalid(s *suite) {
	s.write(batch(1, 1, item(1, "k", "v")))
	before := s.content(1)
	long := strings.Repeat("x", storage.MaxKeyBytes)
	tests := map[string][]storage.Batch{
		"section 0":      {batch(1, 2, item(1, "k", "w"), item(0, "k", "v"))},
		"long key":       {batch(1, 2, item(1, long+"x", "v"))},
		"long value":     {batch(1, 2, storage.Item{Key: key(1, "k"), Value: make([]byte, storage.MaxValueBytes+1)})},
		"a group twice":  {batch(1, 2, item(1, "k", "w")), batch(1, 3)},
		"bad with valid": {batch(2, 2, item(1, "k", "w")), batch(1, 3, item(0, "", ""))},
	}
	for name, batches := range tests {
		if err := s.store.Write(batches); !errors.Is(err, storage.ErrInvalid) {
			s.Errorf("%s: error %v, want ErrInvalid", name, err)
		}
	}
	s.expect(1, before)
	s.expect(2, fmt.Sprintf("mark %+v\n", storage.Mark{}))
	s.write(batch(1, 2, item(1, long, "v")))
}

func testReplace(s *suite) {
	s.write(batch(1, 5, item(1, "old", "1"), item(1, "both", "old")), batch(2, 3, item(1, "k", "v")))
	before, other := s.content(1), s.content(2)
	for round := range uint64(3) {
		r, err := s.store.Replace(1)
		s.must(err)
		s.must(r.Put([]storage.Item{item(1, "new", "2")}))
		s.must(r.Put([]storage.Item{item(2, "both", fmt.Sprint(round))}))
		s.expect(1, before)
		view := s.reader()
		s.must(r.Commit(mark(10 + round)))
		s.must(r.Abort())
		if got := content(s.T, view, 1); got != before {
			s.Errorf("an open view shows\n%s want\n%s", got, before)
		}
		s.must(view.Close())
		before = fmt.Sprintf("mark %+v\n1 \"new\"=\"2\"\n2 \"both\"=\"%d\"\n", mark(10+round), round)
		s.expect(1, before)
	}
	s.expect(2, other)
	s.write(batch(1, 20, deletion(2, "both")))
	s.expect(1, fmt.Sprintf("mark %+v\n1 \"new\"=\"2\"\n", mark(20)))
	s.reopen()
	s.expect(1, fmt.Sprintf("mark %+v\n1 \"new\"=\"2\"\n", mark(20)))
}

func testAbort(s *suite) {
	r, err := s.store.Replace(1)
	s.must(err)
	s.must(r.Put([]storage.Item{item(1, "gone", "1")}))
	if err := r.Put([]storage.Item{item(0, "bad", "1")}); !errors.Is(err, storage.ErrInvalid) {
		s.Errorf("Put of an invalid item: %v", err)
	}
	// The present state goes on meanwhile.
	s.write(batch(1, 5, item(1, "k", "v")))
	s.must(r.Abort())
	s.must(r.Abort())
	s.expect(1, fmt.Sprintf("mark %+v\n1 \"k\"=\"v\"\n", mark(5)))
}

func testDrop(s *suite) {
	s.write(batch(1, 5, item(1, "k", "v")), batch(2, 6, item(1, "k", "v")))
	other := s.content(2)
	s.must(s.store.Drop(1))
	s.must(s.store.Drop(9))
	s.expect(1, fmt.Sprintf("mark %+v\n", storage.Mark{}))
	s.write(batch(1, 1, item(2, "n", "w")))
	s.expect(1, fmt.Sprintf("mark %+v\n2 \"n\"=\"w\"\n", mark(1)))
	s.expect(2, other)
}

func testMeta(s *suite) {
	value := []byte("identity")
	s.must(s.store.SetMeta("node", value))
	value[0] = 'X'
	s.must(s.store.SetMeta("empty", nil))
	s.reopen()
	for name, want := range map[string][]byte{"node": []byte("identity"), "empty": {}, "none": nil} {
		got, err := s.store.Meta(name)
		if err != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			s.Errorf("Meta(%s) = %q, %v; want %q", name, got, err, want)
		}
	}
	s.must(s.store.SetMeta("node", []byte("second")))
	if got, err := s.store.Meta("node"); err != nil || string(got) != "second" {
		s.Errorf("Meta = %q, %v after it was replaced", got, err)
	}
}

func testReopen(s *suite) {
	s.write(batch(1, 5, item(1, "k", "v")), batch(2, 6, item(1, "k", "w")))
	one, two := s.content(1), s.content(2)
	s.reopen()
	s.expect(1, one)
	s.expect(2, two)
}

func testClosed(s *suite) {
	s.must(s.store.Close())
	calls := map[string]func() error{
		"NewReader": func() error { _, err := s.store.NewReader(); return err },
		"Write":     func() error { return s.store.Write([]storage.Batch{batch(1, 1)}) },
		"Replace":   func() error { _, err := s.store.Replace(1); return err },
		"Drop":      func() error { return s.store.Drop(1) },
		"Meta":      func() error { _, err := s.store.Meta("m"); return err },
		"SetMeta":   func() error { return s.store.SetMeta("m", nil) },
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if err := calls[name](); !errors.Is(err, storage.ErrClosed) {
			s.Errorf("%s: error %v, want ErrClosed", name, err)
		}
	}
}

// testConcurrent writes the mark's index into every item, so that a view of half a
// write shows two values.
func testConcurrent(s *suite) {
	const rounds, width = 20, 20
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := s.checkWhole(width); err != nil {
						s.Error(err)
						return
					}
				}
			}
		})
	}
	for n := uint64(1); n <= rounds; n++ {
		b := batch(1, n)
		for i := range width {
			b.Items = append(b.Items, item(1, fmt.Sprint(i), fmt.Sprint(n)))
		}
		if err := s.store.Write([]storage.Batch{b}); err != nil {
			s.Error(err)
			break
		}
	}
	close(stop)
	wg.Wait()
}

func (s *suite) checkWhole(width int) error {
	r, err := s.store.NewReader()
	if err != nil {
		return err
	}
	defer r.Close()
	m, err := r.Mark(1)
	if err != nil {
		return err
	}
	seen, want := 0, fmt.Sprint(m.Index)
	var bad string
	err = r.Scan(1, 1, "", "", func(k string, v []byte) bool {
		seen++
		if string(v) != want {
			bad = fmt.Sprintf("item %s is of write %s in a view of write %s", k, v, want)
		}
		return true
	})
	switch {
	case err != nil:
		return err
	case bad != "":
		return errors.New(bad)
	case m.Index > 0 && seen != width:
		return fmt.Errorf("%d items in a view of write %s", seen, want)
	}
	return nil
}
