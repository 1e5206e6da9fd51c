package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/fsm/storage"
)

// damaged is a store with known content, whose file a test can damage while it is
// open: the mapped pages show every change of the file.
type damaged struct {
	*Store
	file *os.File
	// content is the file undamaged, up to the last byte in use.
	content []byte
	want    map[string]string
	// digest is the sum of the items' hashes, as a mark keeps it.
	digest uint64
}

func newDamaged(t *testing.T) *damaged {
	t.Helper()
	path := tempPath(t)
	s, err := Open(Config{Path: path, JournalBytes: 1}, deps())
	must(t, err)
	d := &damaged{Store: s, want: map[string]string{}}
	var items []storage.Item
	for i := range 400 {
		it := record(fmt.Sprintf("key-%03d", i), fmt.Sprintf("<value of %03d>", i))
		items = append(items, it)
		d.want[it.Key.Bytes] = string(it.Value)
		d.digest += storage.ItemHash(it.Key, it.Value)
	}
	must(t, d.Write([]storage.Batch{{Group: 1, Items: items, Mark: storage.Mark{Index: 1, Digest: d.digest}}}))
	d.settle(t)
	d.file, err = os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	d.content, err = os.ReadFile(path)
	must(t, err)
	d.content = bytes.TrimRight(d.content, "\x00")
	t.Cleanup(func() {
		must(t, d.file.Close())
		must(t, d.Close())
	})
	return d
}

// settle writes until everything is in its place and no journal is left.
func (s *Store) settle(t *testing.T) {
	t.Helper()
	for v := s.views.Load().latest; v.frozen != nil || v.active.bytes > 0; v = s.views.Load().latest {
		must(t, s.Write(nil))
	}
}

// flip flips a bit and returns what undoes it.
func (d *damaged) flip(t *testing.T, offset int64, bit byte) (undo func()) {
	t.Helper()
	var b [1]byte
	_, err := d.file.ReadAt(b[:], offset)
	must(t, err)
	write := func() {
		b[0] ^= bit
		_, err := d.file.WriteAt(b[:], offset)
		must(t, err)
	}
	write()
	return write
}

// flipAt flips a bit at a distance from every copy of a value in the file: pages that
// are free now may hold some.
func (d *damaged) flipAt(t *testing.T, value string, distance int, bit byte) (undo func()) {
	t.Helper()
	var undos []func()
	for from := 0; ; {
		at := bytes.Index(d.content[from:], []byte(value))
		if at < 0 {
			break
		}
		undos = append(undos, d.flip(t, int64(from+at+distance), bit))
		from += at + 1
	}
	if len(undos) == 0 {
		t.Fatalf("%q is not in the file", value)
	}
	return func() {
		for _, undo := range undos {
			undo()
		}
	}
}

// readAll reads everything in both ways. It fails the test on a wrong value, and
// reports whether the store noticed damage, by an error or by its digest.
func (d *damaged) readAll(t *testing.T, what string) (noticed bool) {
	t.Helper()
	r, err := d.NewReader()
	if err != nil {
		return true
	}
	defer r.Close()
	check := func(key string, value []byte, err error) {
		switch {
		case errors.Is(err, storage.ErrCorrupt):
			noticed = true
		case err != nil:
			t.Errorf("%s: %s: untyped error %v", what, key, err)
		case value != nil && string(value) != d.want[key]:
			t.Errorf("%s: %s reads as %q", what, key, value)
		}
	}
	digest := uint64(0)
	err = r.Scan(1, storage.SectionRecords, "", "", func(key string, value []byte) bool {
		check(key, value, nil)
		digest += storage.ItemHash(storage.Key{Section: storage.SectionRecords, Bytes: key}, value)
		return true
	})
	check("scan", nil, err)
	for key := range d.want {
		value, err := r.Get(1, storage.Key{Section: storage.SectionRecords, Bytes: key})
		check(key, value, err)
	}
	mark, err := r.Mark(1)
	check("mark", nil, err)
	return noticed || digest != d.digest || mark.Digest != d.digest
}

func TestADamagedValueIsCorruptAndNeverWrong(t *testing.T) {
	d := newDamaged(t)
	if d.readAll(t, "undamaged") {
		t.Fatal("damage noticed where there is none")
	}
	tested := 0
	for i := 0; i < len(d.want); i += 10 {
		key := fmt.Sprintf("key-%03d", i)
		value := d.want[key]
		// Its bytes, and the checksum in front of them.
		for _, offset := range []int{0, len(value) - 1, -1, -crcSize} {
			undo := d.flipAt(t, value, offset, 1<<(tested%8))
			r, err := d.NewReader()
			must(t, err)
			got, err := r.Get(1, storage.Key{Section: storage.SectionRecords, Bytes: key})
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%s reads as %q, %v; want ErrCorrupt", key, got, err)
			}
			err = r.Scan(1, storage.SectionRecords, key, "", func(string, []byte) bool { return true })
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("scan over %s: %v, want ErrCorrupt", key, err)
			}
			must(t, r.Close())
			undo()
			tested++
		}
	}
	if d.readAll(t, "repaired") {
		t.Error("damage noticed after it was undone")
	}
}

// write1 writes one record of a group with the mark that belongs to it.
func (s *Store) write1(t *testing.T, group uint32, index uint64, value string) {
	t.Helper()
	it := record("key", value)
	mark := storage.Mark{Index: index, Digest: storage.ItemHash(it.Key, it.Value)}
	must(t, s.Write([]storage.Batch{{Group: group, Items: []storage.Item{it}, Mark: mark}}))
}

// TestADamagedJournalDamagesAllGroups holds that the groups come back one by one as they
// are replaced, and that documents of the node are not affected.
func TestADamagedJournalDamagesAllGroups(t *testing.T) {
	path := tempPath(t)
	s := openAt(t, path)
	must(t, s.SetMeta("who", []byte("me")))
	for group := range uint32(3) {
		s.write1(t, group, 1, fmt.Sprint("<the value of ", group, ">"))
	}
	must(t, s.Close())
	content, err := os.ReadFile(path)
	must(t, err)
	// Every copy: pages that are free now may hold some.
	content = bytes.ReplaceAll(content, []byte("<the value of 1>"), []byte("<the walue of 1>"))
	must(t, os.WriteFile(path, content, fileMode))

	check := func(s *Store, whole ...uint32) {
		t.Helper()
		r, err := s.NewReader()
		must(t, err)
		defer r.Close()
		for group := range uint32(3) {
			value, err := r.Get(group, record("key", "").Key)
			_, markErr := r.Mark(group)
			if !slices.Contains(whole, group) {
				if !errors.Is(err, storage.ErrCorrupt) || !errors.Is(markErr, storage.ErrCorrupt) {
					t.Errorf("group %d reads as %q, %v, mark %v; want ErrCorrupt", group, value, err, markErr)
				}
			} else if err != nil || markErr != nil || string(value) != fmt.Sprint("new ", group) {
				t.Errorf("group %d reads as %q, %v, mark %v", group, value, err, markErr)
			}
		}
	}
	var whole []uint32
	for group := range uint32(3) {
		s = openAt(t, path)
		check(s, whole...)
		if who, err := s.Meta("who"); err != nil || string(who) != "me" {
			t.Errorf("document is %q, %v", who, err)
		}
		must(t, s.Quarantine(group))
		aside, err := s.Quarantined()
		must(t, err)
		if len(aside) != int(group)+1 || aside[group] != 1 {
			t.Errorf("set aside %v", aside)
		}
		r, err := s.Replace(group)
		must(t, err)
		must(t, r.Put([]storage.Item{record("key", fmt.Sprint("old ", group))}))
		must(t, r.Commit(storage.Mark{Index: 5}))
		s.write1(t, group, 6, fmt.Sprint("new ", group))
		whole = append(whole, group)
		check(s, whole...)
		must(t, s.Close())
	}
	s = openAt(t, path)
	check(s, whole...)
	must(t, s.Close())
}

// TestABitFlipAnywhereIsNeverWrongData flips bits of whole pages, bbolt's own
// structure included. Reading may fail or miss items, which the digest shows, but
// never gives a value that was not stored, and never ends the process.
func TestABitFlipAnywhereIsNeverWrongData(t *testing.T) {
	d := newDamaged(t)
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	rnd := rand.New(rand.NewPCG(s, 0))
	const flips = 300
	noticed := 0
	for range flips {
		offset, bit := rnd.Int64N(int64(len(d.content))), byte(1)<<rnd.IntN(8)
		undo := d.flip(t, offset, bit)
		if d.readAll(t, fmt.Sprintf("bit %#x of byte %d", bit, offset)) {
			noticed++
		}
		undo()
	}
	t.Logf("%d of %d flips noticed; the others hit bytes that are not in use", noticed, flips)
	if noticed < flips/20 {
		t.Errorf("only %d of %d flips were noticed", noticed, flips)
	}
}

func TestAPanicOfTheCallerIsNotTakenForDamage(t *testing.T) {
	d := newDamaged(t)
	r, err := d.NewReader()
	must(t, err)
	defer r.Close()
	defer func() {
		if p := recover(); p != "caller's" {
			t.Errorf("recovered %v, want the caller's panic", p)
		}
	}()
	_ = r.Scan(1, storage.SectionRecords, "", "", func(string, []byte) bool { panic("caller's") })
}
