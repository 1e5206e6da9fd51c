package bolt

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/quorate/quorate/fsm/storage"
)

// TestADamagedBranchHidesNothing flips every bit of the keys in branch pages, which have no
// checksum: a key that is there is found, or its absence is not believed. The page numbers
// beside them are checked when a file is opened.
func TestADamagedBranchHidesNothing(t *testing.T) {
	d := newDamaged(t)
	size, flips := os.Getpagesize(), 0
	for at := 2 * size; at+size <= len(d.content); at += size {
		page := d.content[at:]
		if binary.LittleEndian.Uint16(page[8:]) != pageBranch {
			continue
		}
		for i := range int(binary.LittleEndian.Uint16(page[10:])) {
			element := pageHeader + i*elementBytes
			key := element + int(binary.LittleEndian.Uint32(page[element:]))
			for bit := range 8 * int(binary.LittleEndian.Uint32(page[element+4:])) {
				undo := d.flip(t, int64(at+key+bit/8), 1<<(bit%8))
				d.expectNothingHidden(t, at+key+bit/8, bit%8)
				undo()
				flips++
			}
		}
	}
	if flips < 200 {
		t.Fatalf("%d bits flipped: the file has too few branches", flips)
	}
}

func (d *damaged) expectNothingHidden(t *testing.T, offset, bit int) {
	t.Helper()
	r, err := d.NewReader()
	if errors.Is(err, storage.ErrCorrupt) {
		return
	}
	must(t, err)
	defer r.Close()
	for key, want := range d.want {
		value, err := r.Get(1, storage.Key{Section: storage.SectionRecords, Bytes: key})
		if err == nil && string(value) != want {
			t.Fatalf("byte %d, bit %d: %s reads as %q", offset, bit, key, value)
		}
		if err != nil && !errors.Is(err, storage.ErrCorrupt) {
			t.Fatalf("byte %d, bit %d: %s: %v", offset, bit, key, err)
		}
	}
}
