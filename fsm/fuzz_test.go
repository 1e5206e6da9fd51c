package fsm

import (
	"bytes"
	"errors"
	"testing"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
)

// FuzzDecodeStored holds that stored records, sets and tags are read as what they were
// written from, or are reported as damaged.
func FuzzDecodeStored(f *testing.F) {
	ts := protocol.Timestamp{Millis: 5, Counter: 6, NodeID: "n"}
	f.Add(encodeRecord(stored{Record: protocol.Record{Value: []byte{1}, Timestamp: ts, TTLMillis: 7}, index: 8, removed: 9, item: 10}))
	f.Add(encodeSet(&orSet{index: 1, item: 2, removed: 3, records: []protocol.ORRecord{{Tag: "t", Value: []byte{1}, Timestamp: ts, TTLMillis: 4}}}))
	f.Add(encodeTag(orTag{state: TagRemoved, key: "k", index: 1, removed: 2}))
	f.Add(lock.Append([]byte{lockFormat}, &lock.Lock{Token: 1, Holder: lock.Request{ID: 2}, Waiters: []lock.Request{{TTLMillis: 3}}}))
	f.Add(command.AppendCells([]byte{counterFormat}, []command.Cell{{Writer: "w", Positive: 1}}))
	f.Add(command.AppendResult(append([]byte{outcomeFormat}, make([]byte, 16)...), command.Result{Index: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		loadAnything(t, b)
		rec, recErr := decodeRecord(b)
		set, setErr := decodeSet(b)
		tag, tagErr := decodeTag(b)
		for _, err := range []error{recErr, setErr, tagErr} {
			if err != nil && !errors.Is(err, storage.ErrCorrupt) {
				t.Fatalf("untyped error %v", err)
			}
		}
		if recErr == nil {
			again, err := decodeRecord(encodeRecord(rec))
			if err != nil || again.index != rec.index || again.item != rec.item || again.Timestamp != rec.Timestamp || !bytes.Equal(again.Value, rec.Value) {
				t.Fatalf("record %+v reads back as %+v: %v", rec, again, err)
			}
		}
		if setErr == nil {
			again, err := decodeSet(encodeSet(&set))
			if err != nil || again.index != set.index || len(again.records) != len(set.records) {
				t.Fatalf("set %+v reads back as %+v: %v", set, again, err)
			}
		}
		if tagErr == nil && b != nil {
			if again, err := decodeTag(encodeTag(tag)); err != nil || again != tag {
				t.Fatalf("tag %+v reads back as %+v: %v", tag, again, err)
			}
		}
	})
}

// loadAnything gives b to every section as a value, and as the value of the names that a
// section knows.
func loadAnything(t *testing.T, b []byte) {
	t.Helper()
	for section := range sections {
		for _, key := range []string{"", "\x01m\x00\x00k", "\x00\x00\x00\x00\x00\x00\x00\x01", tokenName, horizonName, "genesis"} {
			err := newResident().load(storage.Key{Section: storage.Section(section), Bytes: key}, b)
			if err != nil && !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrFormat) {
				t.Fatalf("section %d, key %q: untyped error %v", section, key, err)
			}
		}
	}
}
