package fsm

import (
	"bytes"
	"errors"
	"testing"

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
	f.Fuzz(func(t *testing.T, b []byte) {
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
