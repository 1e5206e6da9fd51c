package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// TestTreesEqualTheirRecords holds the trees, which grow with each write, against ones
// made from the records.
func TestTreesEqualTheirRecords(t *testing.T) {
	rnd := newRand(t)
	for range 10 {
		log := randomLog(t, rnd, 1, 150)
		r := newReplica(t, 1, log, memory.New(memory.Config{}), batchSize(10), cacheBytes(rnd.IntN(2000)))
		for running := true; running; {
			running = r.step(1 + rnd.IntN(20))
			switch rnd.IntN(6) {
			case 0:
				r.flush()
			case 1:
				r.crashAndReplay()
			}
			for _, name := range modelMaps {
				r.checkTree(name)
			}
		}
	}
}

// checkTree compares the tree of a map, its leaves and its deltas with its records.
func (r *replica) checkTree(name string) {
	r.t.Helper()
	var fresh merkle.Tree
	byBucket := map[uint16][]protocol.KeyedRecord{}
	_, err := r.machine.Scan(name, "", func(key string, rec protocol.Record) bool {
		bucket := merkle.BucketOf(key)
		fresh.Update(bucket, 0, merkle.LWWItem(key, rec.Timestamp), 1, 0)
		byBucket[bucket] = append(byBucket[bucket], protocol.KeyedRecord{Key: key, Record: rec})
		return true
	})
	r.must(err)
	want := new(merkle.Leaves)
	fresh.AddTo(want)
	if *want != *r.leaves(name, merkle.Records) {
		r.t.Fatalf("tree of %q differs from its records", name)
	}
	var all []protocol.KeyedRecord
	for _, bucket := range r.buckets(name, merkle.Records) {
		list := r.leaf(name, bucket)
		if diff := cmp.Diff(byBucket[bucket], list); diff != "" {
			r.t.Fatalf("leaf of %q (-want +got):\n%s", name, diff)
		}
		all = append(all, list...)
	}
	since, _ := r.recordsSince(name, 0)
	for _, list := range [][]protocol.KeyedRecord{all, since} {
		slices.SortFunc(list, func(a, b protocol.KeyedRecord) int { return strings.Compare(a.Key, b.Key) })
	}
	if diff := cmp.Diff(all, since); diff != "" {
		r.t.Fatalf("delta of everything in %q (-want +got):\n%s", name, diff)
	}
}

// recordsSince reads a delta as a server does.
func (r *rig) recordsSince(name string, since uint64) (all []protocol.KeyedRecord, index uint64) {
	r.t.Helper()
	buckets, index, err := r.machine.ChangedBuckets(name, since)
	r.must(err)
	for _, bucket := range buckets {
		r.must(r.machine.LeafRecords(fsm.Leaf{Map: name, Bucket: bucket}, since, func(key string, rec protocol.Record) bool {
			all = append(all, protocol.KeyedRecord{Key: key, Record: rec.Clone()})
			return true
		}))
	}
	return all, index
}

func TestADeltaHasWhatWasStoredSince(t *testing.T) {
	r := newRig(t, 1)
	for i := range uint64(20) {
		r.apply(entry(i+1, ts(int64(i), 0), put("m", fmt.Sprint("k", i), "v", ts(1, 0))))
	}
	r.flush()
	r = r.crash()
	// An old write and a deletion that come late, and one that loses.
	r.apply(entry(21, ts(50, 0), put("m", "late", "v", ts(1, 0)), put("m", "k3", "", ts(9, 0)), put("m", "k4", "x", ts(0, 0))))
	list, index := r.recordsSince("m", 20)
	var got []string
	for _, rec := range list {
		got = append(got, fmt.Sprint(rec.Key, " ", rec.Record.IsTombstone()))
	}
	slices.Sort(got)
	if want := []string{"k3 true", "late false"}; !slices.Equal(got, want) || index != 21 {
		t.Errorf("delta %q at %d, want %q at 21", got, index, want)
	}
	for _, name := range []string{"m", "unknown"} {
		if list, _ := r.recordsSince(name, 21); len(list) > 0 {
			t.Errorf("delta of %s after everything: %v", name, list)
		}
	}
}

// countingStore counts the values that are read.
type countingStore struct {
	storage.Store
	reads int
}

type countingReader struct {
	storage.Reader
	store *countingStore
}

func (s *countingStore) NewReader() (storage.Reader, error) {
	r, err := s.Store.NewReader()
	return countingReader{r, s}, err
}

func (r countingReader) Get(group uint32, key storage.Key) ([]byte, error) {
	r.store.reads++
	return r.Reader.Get(group, key)
}

func (r countingReader) Scan(group uint32, section storage.Section, prefix, from string, fn func(string, []byte) bool) error {
	return r.Reader.Scan(group, section, prefix, from, func(key string, value []byte) bool {
		r.store.reads++
		return fn(key, value)
	})
}

func TestSyncReadsWhatItShowsAndNoMore(t *testing.T) {
	store := &countingStore{Store: memory.New(memory.Config{})}
	r := openRig(t, 1, store, cacheBytes(0))
	for i := range uint64(2000) {
		r.apply(entry(i+1, ts(int64(i), 0), put("m", fmt.Sprint("k", i), "v", ts(1, 0))))
	}
	r.flush()
	store.reads = 0
	leaves := r.leaves("m", merkle.Records)
	if leaves.Root() == 0 || len(leaves.Children("", false)) != 16 || store.reads > 0 {
		t.Errorf("root and children took %d reads", store.reads)
	}
	list := r.leaf("m", merkle.BucketOf("k7"))
	if store.reads != len(list) || len(list) == 0 {
		t.Errorf("a leaf of %d records took %d reads", len(list), store.reads)
	}
	r.apply(entry(2001, ts(1, 0), put("m", "k7", "w", ts(2, 0))))
	store.reads = 0
	if delta, _ := r.recordsSince("m", 2000); len(delta) != 1 || store.reads > 2*len(list) {
		t.Errorf("a delta of %d records took %d reads", len(delta), store.reads)
	}
}
