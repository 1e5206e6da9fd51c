package bolt

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/quorate/quorate/fsm/storage"
)

// BenchmarkWrite measures what one item costs in transactions of one batch for each
// of six groups, over random keys of a store that has many.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{100, 256} {
		b.Run(fmt.Sprintf("items=%d", size), func(b *testing.B) { benchmarkWrite(b, size) })
	}
}

func benchmarkWrite(b *testing.B, size int) {
	const groups, keys = 6, 50_000
	s, err := Open(Config{Path: b.TempDir() + "/db"}, deps())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	value := []byte(strings.Repeat("v", 150))
	write := func(size int) {
		var batches []storage.Batch
		for g := range uint32(groups) {
			items := make([]storage.Item, size)
			for i := range items {
				key := fmt.Sprintf("\x05todoskey-%d", rnd.IntN(keys))
				items[i] = storage.Item{Key: storage.Key{Section: storage.SectionRecords, Bytes: key}, Value: value}
			}
			batches = append(batches, storage.Batch{Group: g, Items: items, Mark: storage.Mark{Index: 1}})
		}
		if err := s.Write(batches); err != nil {
			b.Fatal(err)
		}
	}
	for range 10 {
		write(keys / 10)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += groups * size {
		write(size)
	}
}

// BenchmarkScan measures what one record of a scan costs, beside a bare cursor over the
// same pages.
func BenchmarkScan(b *testing.B) {
	const keys = 200_000
	s, err := Open(Config{Path: b.TempDir() + "/db", JournalBytes: 1}, deps())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	items := make([]storage.Item, keys)
	for i := range items {
		key := fmt.Sprintf("\x05todoskey-%06d", i)
		items[i] = storage.Item{Key: storage.Key{Section: storage.SectionRecords, Bytes: key}, Value: make([]byte, 350)}
	}
	write := func(items []storage.Item) {
		if err := s.Write([]storage.Batch{{Items: items, Mark: storage.Mark{Index: 1}}}); err != nil {
			b.Fatal(err)
		}
	}
	write(items)
	write(items[:1])
	for s.views.Load().latest.frozen != nil {
		write(items[:1])
	}
	r, err := s.NewReader()
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		for n := 0; n < b.N; {
			err := r.Scan(0, storage.SectionRecords, "", "", func(string, []byte) bool { n++; return n < b.N })
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cursor", func(b *testing.B) {
		touched := 0
		for n := 0; n < b.N; {
			bucket, err := r.(*reader).current(0)
			if err != nil {
				b.Fatal(err)
			}
			c := bucket.b.Cursor()
			for key, value := c.First(); key != nil && n < b.N; key, value = c.Next() {
				n++
				touched += int(value[len(value)-1])
			}
		}
	})
}
