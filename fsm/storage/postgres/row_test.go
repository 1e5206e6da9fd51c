package postgres

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// FuzzDecodeRow holds that a row of the table, which others can write to, is refused, or
// takes memory in proportion to its value and is written as what reads back as itself. So
// is one that consists of the same names and bytes.
func FuzzDecodeRow(f *testing.F) {
	ts := protocol.Timestamp{Millis: 7, Counter: 3, NodeID: "n1"}
	record := &protocol.Record{Value: []byte{0x81, 0xa1, 'x', 1}, Timestamp: ts, TTLMillis: 50}
	set := protocol.OREntry{Records: []protocol.ORRecord{
		{Timestamp: ts, Tag: "t1"}, {Value: []byte{1}, Timestamp: ts, Tag: "t2", TTLMillis: 9},
	}, Tombstones: []string{"gone", ""}}
	for _, r := range []Row{
		{Map: "m", Key: "k", Record: record},
		{Map: "m", Key: "k", Record: &protocol.Record{Timestamp: ts}},
		{Map: "m", Key: "k", Set: set},
		{Map: "m\x00", Key: strings.Repeat("k", 2*maxName), Record: record, Set: set},
		{Map: hashed, Key: "\xff", Set: protocol.OREntry{Tombstones: []string{"all"}}},
	} {
		mapColumn, _ := column(r.Map)
		keyColumn, _ := column(r.Key)
		f.Add(mapColumn, keyColumn, appendValue(nil, &r))
	}
	f.Add("m", "k", []byte{})
	f.Add("m", "k", []byte{0x80})
	f.Add("m", "k", append([]byte{0x81, 0xa7}, "records\xdd\xff\xff\xff\xff"...))
	f.Fuzz(func(t *testing.T, mapColumn, keyColumn string, value []byte) {
		raw, tag := msgp.AppendBytes(nil, value), string(value)
		requireReadsBack(t, Row{Map: mapColumn, Key: keyColumn, Record: &protocol.Record{Value: raw, Timestamp: ts}, Set: protocol.OREntry{
			Key: keyColumn, Records: []protocol.ORRecord{{Value: raw, Timestamp: ts, Tag: tag}}, Tombstones: []string{tag, ""},
		}})
		row, err := decodeRow(mapColumn, keyColumn, value)
		if err != nil {
			if !errors.Is(err, errValue) || row.Record != nil || row.Set.Records != nil {
				t.Fatalf("row %+v, untyped error %v", row, err)
			}
			return
		}
		if len(row.Set.Records)+len(row.Set.Tombstones) > len(value) {
			t.Fatalf("%d records and %d tombstones of %d bytes", len(row.Set.Records), len(row.Set.Tombstones), len(value))
		}
		requireReadsBack(t, row)
	})
}

// requireReadsBack writes row and reads it back.
func requireReadsBack(t *testing.T, row Row) {
	t.Helper()
	encoded := appendValue(nil, &row)
	if bytes.Equal(encoded, []byte{0x80}) {
		return // Of a value without any known field, nothing is left to write.
	}
	mapColumn, _ := column(row.Map)
	keyColumn, _ := column(row.Key)
	again, err := decodeRow(mapColumn, keyColumn, encoded)
	if err != nil {
		t.Fatalf("row %+v is written as %x, which is refused: %v", row, encoded, err)
	}
	if diff := cmp.Diff(row, again, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%x reads back as another row:\n%s", encoded, diff)
	}
}
