package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/fsm/storage"
)

// fuzzedPages is the size of the pages of the file that FuzzOpen damages.
const fuzzedPages = 4096

// fuzzedFile is the file of a store with some of everything, and what its records are.
func fuzzedFile(f *testing.F) (content []byte, want map[string]string) {
	check := func(err error) {
		if err != nil {
			f.Fatal(err)
		}
	}
	path := filepath.Join(f.TempDir(), "service.db")
	db, err := bbolt.Open(path, fileMode, &bbolt.Options{PageSize: fuzzedPages})
	check(err)
	check(db.Close())
	s, err := Open(Config{Path: path, JournalBytes: 4 << 10}, deps())
	check(err)
	want = map[string]string{}
	for round := range 12 {
		var items []storage.Item
		for i := range 12 {
			it := record(fmt.Sprintf("key-%d-%d", round, i), fmt.Sprintf("<value of %d and %d>", round, i))
			items, want[it.Key.Bytes] = append(items, it), string(it.Value)
		}
		check(s.Write([]storage.Batch{{Group: 1, Items: items, Mark: storage.Mark{Index: uint64(round) + 1}}}))
	}
	check(s.SetMeta("who", []byte("me")))
	check(s.Close())
	content, err = os.ReadFile(path)
	check(err)
	return content, want
}

// resummed writes right checksums into the meta pages, so that what they say is read.
func resummed(content []byte) {
	for _, at := range []int{pageHeader, fuzzedPages + pageHeader} {
		if meta := content[at:]; len(meta) >= metaBytes {
			h := fnv.New64a()
			_, _ = h.Write(meta[:56]) // never fails
			binary.LittleEndian.PutUint64(meta[56:], h.Sum64())
		}
	}
}

// FuzzOpen overwrites two places of a store's file: it is refused as damaged, or as written
// by another build, or reads as what was written, as far as it is there. The process goes
// on in any case.
func FuzzOpen(f *testing.F) {
	content, want := fuzzedFile(f)
	for at := 0; at < 4*fuzzedPages; at += fuzzedPages {
		f.Add(uint32(at), []byte{0xff}, uint32(at+8), []byte{2, 0, 9}, true)
	}
	f.Add(uint32(pageHeader+16), []byte{1}, uint32(fuzzedPages+pageHeader+16), []byte{1}, true)
	f.Add(uint32(pageHeader+40), []byte{9}, uint32(fuzzedPages+pageHeader+40), []byte{9}, true)
	f.Add(uint32(pageHeader+32), []byte{9}, uint32(fuzzedPages+pageHeader+32), []byte{9}, true)
	// Pages of another size, and more of them than there are, by the second meta page alone.
	f.Add(uint32(fuzzedPages+pageHeader+8), []byte{0x30}, uint32(fuzzedPages+pageHeader+42), []byte{0x30, 0x30}, true)
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, at2 uint32, patch2 []byte, resum bool) {
		file := bytes.Clone(content)
		copy(file[int(at)%len(file):], patch)
		copy(file[int(at2)%len(file):], patch2)
		if resum {
			resummed(file)
		}
		path := tempPath(t)
		must(t, os.WriteFile(path, file, fileMode))
		s, err := Open(Config{Path: path}, deps())
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrFormat) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		typed := func(err error) {
			if err != nil && !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrFormat) {
				t.Errorf("untyped error %v", err)
			}
		}
		who, err := s.Meta("who")
		if typed(err); err == nil && who != nil && string(who) != "me" {
			t.Errorf("document %q", who)
		}
		_, err = s.Quarantined()
		typed(err)
		r, err := s.NewReader()
		if typed(err); err == nil {
			_, err := r.Mark(1)
			typed(err)
			typed(r.Scan(1, storage.SectionRecords, "", "", func(key string, value []byte) bool {
				if want[key] != string(value) {
					t.Errorf("%q reads as %q", key, value)
				}
				return true
			}))
			typed(r.Close())
		}
		typed(s.Close())
	})
}
