package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/fsm/storage"
)

func TestTheFileIsPrivate(t *testing.T) {
	path := tempPath(t)
	defer openAt(t, path).Close()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
}

func TestASecondOpenIsRefused(t *testing.T) {
	path := tempPath(t)
	s := openAt(t, path)
	if _, err := Open(Config{Path: path}, deps()); !errors.Is(err, storage.ErrLocked) {
		t.Errorf("error %v, want ErrLocked", err)
	}
	must(t, s.Close())
	must(t, openAt(t, path).Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// edit changes the file beside the store's back.
func edit(t *testing.T, path string, change func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Update(change))
	must(t, db.Close())
}

func TestFilesThatAreNotOursAreRefused(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, path string)
		want error
	}{
		{"newer format", func(t *testing.T, path string) {
			must(t, openAt(t, path).Close())
			edit(t, path, func(tx *bbolt.Tx) error {
				return openBucket(tx, storeBucket).put(formatKey, binary.BigEndian.AppendUint32(nil, formatVersion+1))
			})
		}, storage.ErrFormat},
		{"damaged format", func(t *testing.T, path string) {
			must(t, openAt(t, path).Close())
			edit(t, path, func(tx *bbolt.Tx) error { return tx.Bucket(storeBucket).Put(formatKey, []byte("12345678")) })
		}, storage.ErrCorrupt},
		{"another program's database", func(t *testing.T, path string) {
			edit(t, path, func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err })
		}, storage.ErrFormat},
		{"no database", func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte(strings.Repeat("text\n", 10_000)), 0o600))
		}, storage.ErrCorrupt},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			path := tempPath(t)
			tc.make(t, path)
			if _, err := Open(Config{Path: path}, deps()); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
}

func record(key, value string) storage.Item {
	return storage.Item{Key: storage.Key{Section: storage.SectionRecords, Bytes: key}, Value: []byte(value)}
}

// buckets lists the buckets in the file whose names begin with prefix.
func (s *Store) buckets(t *testing.T, prefix string) (names []string) {
	t.Helper()
	must(t, s.view(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			if strings.HasPrefix(string(name), prefix) {
				names = append(names, string(name))
			}
			return nil
		})
	}))
	return names
}

// awaitGenerations waits until only the wanted number of generations is left.
func (s *Store) awaitGenerations(t *testing.T, want int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		names := s.buckets(t, generationPrefix)
		if len(names) == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("generations %q, want %d", names, want)
		}
	}
}

func manyRecords(n int) (items []storage.Item) {
	for i := range n {
		items = append(items, record(fmt.Sprint("key", i), strings.Repeat("v", 20)))
	}
	return items
}

func TestAbandonedGenerationsAreRemovedInTheBackground(t *testing.T) {
	path := tempPath(t)
	s := openAt(t, path)
	for round := range uint64(3) {
		r, err := s.Replace(1)
		must(t, err)
		must(t, r.Put(manyRecords(3*sweepItems)))
		must(t, r.Commit(storage.Mark{Index: round + 1}))
	}
	aborted, err := s.Replace(1)
	must(t, err)
	must(t, aborted.Put(manyRecords(10)))
	must(t, aborted.Abort())
	s.awaitGenerations(t, 1)

	// A replacement that a crash cut short is removed at the next start, and its
	// number is not mixed up with a later one's.
	cut, err := s.Replace(1)
	must(t, err)
	must(t, cut.Put(manyRecords(10)))
	if n := len(s.buckets(t, generationPrefix)); n != 2 {
		t.Errorf("%d generations while one is loading, want 2", n)
	}
	must(t, s.Close())
	s = openAt(t, path)
	defer s.Close()
	s.awaitGenerations(t, 1)
	reader, err := s.NewReader()
	must(t, err)
	defer reader.Close()
	if m, err := reader.Mark(1); err != nil || m.Index != 3 {
		t.Errorf("mark %+v, %v; want that of the last replacement", m, err)
	}
}

func TestADroppedGroupIsRemovedInTheBackground(t *testing.T) {
	s := openAt(t, tempPath(t))
	defer s.Close()
	must(t, s.Write([]storage.Batch{{Group: 1, Items: manyRecords(2 * sweepItems), Mark: storage.Mark{Index: 1}}}))
	must(t, s.Drop(1))
	s.awaitGenerations(t, 0)
}
