package logstore

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
)

const benchEntryBytes = 200

// BenchmarkStoreLogs compares one group with raft-boltdb in the same run. The
// metric "x-boltdb" is how many times faster the shared log was.
func BenchmarkStoreLogs(b *testing.B) {
	for _, size := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			base := benchBolt(b, 1, size)
			compareWithBolt(b, base, benchShared(b, 1, size))
		})
	}
}

// BenchmarkSixGroups writes to six groups at the same time: one shared log against
// six raft-boltdb files.
func BenchmarkSixGroups(b *testing.B) {
	for _, size := range []int{1, 16} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			base := benchBolt(b, 6, size)
			compareWithBolt(b, base, benchShared(b, 6, size))
		})
	}
}

// compareWithBolt reports the rates of both stores, in entries per second.
func compareWithBolt(b *testing.B, bolt, shared float64) {
	b.ReportMetric(shared, "entries/s")
	b.ReportMetric(bolt, "boltdb-entries/s")
	b.ReportMetric(shared/bolt, "x-boltdb")
}

func benchShared(b *testing.B, groups, size int) float64 {
	l := mustOpen(b, DefaultConfig(filepath.Join(b.TempDir(), "log")), nil)
	defer mustClose(b, l)
	var stores []raft.LogStore
	for id := range groups {
		stores = append(stores, l.Group(uint32(id)))
	}
	// Begin on a file that was filled ahead, as a log that runs for long does.
	for i := uint64(1); l.Stats().Rotations == 0; i++ {
		noErr(b, l.Group(999).StoreLog(entry(i, 1, 32<<10)))
	}
	before := l.Stats()
	b.ResetTimer()
	rate := storeEverywhere(b, stores, size)
	after := l.Stats()
	b.ReportMetric(float64(after.Entries-before.Entries)/float64(after.Batches-before.Batches), "entries/fsync")
	return rate
}

func benchBolt(b *testing.B, groups, size int) float64 {
	var stores []raft.LogStore
	for id := range groups {
		s, err := boltdb.NewBoltStore(filepath.Join(b.TempDir(), fmt.Sprint(id)))
		noErr(b, err)
		defer func() { noErr(b, s.Close()) }()
		stores = append(stores, s)
	}
	b.ResetTimer()
	return storeEverywhere(b, stores, size)
}

// storeEverywhere makes b.N calls of StoreLogs, spread over the stores, each of
// which is written by one goroutine as raft does. It returns entries per second.
func storeEverywhere(b *testing.B, stores []raft.LogStore, size int) float64 {
	var calls atomic.Int64
	var wg sync.WaitGroup
	start := b.Elapsed()
	for _, s := range stores {
		wg.Go(func() {
			data := make([]byte, benchEntryBytes)
			logs := make([]*raft.Log, size)
			for i := range logs {
				logs[i] = &raft.Log{Term: 1, Data: data}
			}
			for next := uint64(1); calls.Add(1) <= int64(b.N); {
				for _, log := range logs {
					log.Index = next
					next++
				}
				if err := s.StoreLogs(logs); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(b.N*size) / (b.Elapsed() - start).Seconds()
}

// BenchmarkStoreLogsInMemory shows the cost without a disk, and its allocations.
func BenchmarkStoreLogsInMemory(b *testing.B) {
	for _, size := range []int{1, 256} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			l, _ := openMem(b, MemConfig("/log"))
			g := l.Group(1)
			data := make([]byte, benchEntryBytes)
			logs := make([]*raft.Log, size)
			for i := range logs {
				logs[i] = &raft.Log{Term: 1, Data: data}
			}
			b.ReportAllocs()
			next := uint64(1)
			for b.Loop() {
				for _, log := range logs {
					log.Index = next
					next++
				}
				noErr(b, g.StoreLogs(logs))
				if next%8192 <= uint64(size) && next > 8192 {
					noErr(b, g.DeleteRange(1, next-4096))
				}
			}
		})
	}
}

func BenchmarkGetLog(b *testing.B) {
	for name, entriesBack := range map[string]uint64{"cached": 100, "file": 50000} {
		b.Run(name, func(b *testing.B) {
			l := mustOpen(b, DefaultConfig(filepath.Join(b.TempDir(), "log")), nil)
			defer mustClose(b, l)
			g := l.Group(1)
			const total = 60000
			for i := uint64(1); i <= total; i += 1000 {
				noErr(b, g.StoreLogs(entries(i, i+999, 1, benchEntryBytes)))
			}
			b.ReportAllocs()
			var log raft.Log
			for i := uint64(0); b.Loop(); i++ {
				noErr(b, g.GetLog(total-entriesBack+i%90, &log))
			}
		})
	}
}
