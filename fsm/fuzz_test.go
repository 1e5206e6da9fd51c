package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
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

// FuzzLoad holds that an item of any section under any key is reported as damaged, or gives
// the same state when it is written again and read back.
func FuzzLoad(f *testing.F) {
	held := &lock.Lock{Name: "l", Token: 3, Lease: 2, Holder: lock.Request{Session: lock.Session{Gateway: "g", Number: 1}, ID: 2}, Waiters: []lock.Request{{TTLMillis: 3}}}
	outcome := command.AppendResult(append([]byte{contentFormat}, make([]byte, 16)...), command.Result{Index: 1, Reason: "r"})
	outcome = binary.AppendVarint(append(append(outcome, 0), make([]byte, 16)...), -7)
	leaf := &tree{id: treeID{"m", merkle.Sets}}
	for _, it := range []storage.Item{
		{Key: storage.Key{Section: storage.SectionSystem, Bytes: system.GenesisKey}, Value: system.AppendGenesis(nil, system.Genesis{ClusterID: "c", Groups: 7})},
		{Key: storage.Key{Section: storage.SectionSystem, Bytes: system.DatabaseKey}, Value: system.AppendDatabase(nil, system.Database{Instance: "i", Epoch: 1, Token: 2})},
		{Key: storage.Key{Section: storage.SectionSystem, Bytes: system.TableKey}, Value: system.AppendTable(nil, system.Table{Version: 3, Groups: []system.Placement{{Voters: []string{"a#1"}}}})},
		{Key: storage.Key{Section: storage.SectionSystem, Bytes: system.MemberKey("a#1")}, Value: system.AppendMember(nil, system.Member{ID: "a#1", NodeID: "a"})},
		{Key: storage.Key{Section: storage.SectionSystem, Bytes: system.DocumentKey("d")}, Value: system.AppendDocument(nil, system.Document{Name: "d", Version: 1, Value: []byte("{}")})},
		{Key: storage.Key{Section: storage.SectionLocks, Bytes: "l"}, Value: lock.Append([]byte{lockFormat}, held)},
		{Key: storage.Key{Section: storage.SectionGateways, Bytes: "g"}, Value: []byte{gatewayFormat, 9}},
		{Key: storage.Key{Section: storage.SectionFences, Bytes: "l"}, Value: []byte{fenceFormat, 0x80, 1}},
		{Key: storage.Key{Section: storage.SectionCounters, Bytes: "c"}, Value: command.AppendCells([]byte{counterFormat}, []command.Cell{{Writer: "a", Positive: 1}, {Writer: "b", Negative: 0.5}})},
		{Key: storage.Key{Section: storage.SectionAdded, Bytes: "\x00\x00\x00\x00\x00\x00\x00\x05"}, Value: outcome},
		{Key: storage.Key{Section: storage.SectionGroup, Bytes: tokenName}, Value: []byte{tokenFormat, 8}},
		{Key: horizonKey, Value: encodeHorizon(Horizon{ClosedMillis: 3, PrunedMillis: 2, CollectedMillis: 1})},
		{Key: leaf.key(4095), Value: encodeLeaf(merkle.Bucket{Sum: 1, Keys: 2, Changed: 3})},
		{Key: leaf.key(4096), Value: encodeLeaf(merkle.Bucket{})},
		{Key: storage.Key{Section: storage.SectionLeaves, Bytes: "\x80\x00\x02\x00\x30"}, Value: []byte("000000")},
		{Key: leaf.key(1), Value: []byte{0, 0, 0, 0, 0x81, 0x80, 0x80, 0x80, 0x10, 1}},
	} {
		f.Add(byte(it.Key.Section), it.Key.Bytes, it.Value)
	}
	f.Fuzz(func(t *testing.T, section byte, key string, value []byte) {
		k := storage.Key{Section: storage.Section(section), Bytes: key}
		first := newResident()
		err := first.loadOrLeaf(k, value)
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrFormat) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		for _, tree := range first.trees.byID {
			if keys, _ := binary.Uvarint(value[min(4, len(value)):]); k.Section == storage.SectionLeaves && uint64(tree.keys) != keys {
				t.Fatalf("%d keys of %x", tree.keys, value)
			}
		}
		again := newResident()
		canonical := first.written(k, value)
		if err := again.loadOrLeaf(k, canonical); err != nil {
			t.Fatalf("%x of %q, read from %x: %v", canonical, key, value, err)
		}
		if twice := again.written(k, canonical); !bytes.Equal(canonical, twice) {
			t.Fatalf("%x of %q is written as %x", canonical, key, twice)
		}
		if diff := cmp.Diff(first.cluster, again.cluster); diff != "" || first.horizon != again.horizon {
			t.Fatalf("horizon %+v and %+v, cluster (-want +got):\n%s", first.horizon, again.horizon, diff)
		}
	})
}

// loadOrLeaf is load, for the leaves of trees too.
func (s *resident) loadOrLeaf(key storage.Key, value []byte) error {
	if key.Section == storage.SectionLeaves {
		return s.trees.loadLeaf(key.Bytes, value)
	}
	return s.load(key, value)
}

// written is the stored form of what load made of an item; value is that of items of which
// nothing, or not all, is kept.
func (s *resident) written(key storage.Key, value []byte) []byte {
	switch key.Section {
	case storage.SectionLocks:
		return lock.Append([]byte{lockFormat}, s.locks.Get(key.Bytes))
	case storage.SectionGateways:
		return binary.AppendUvarint([]byte{gatewayFormat}, s.locks.Beat(key.Bytes))
	case storage.SectionFences:
		token, _ := decodeFence(value)
		return binary.AppendUvarint([]byte{fenceFormat}, token)
	case storage.SectionCounters:
		cells, _ := decodeCounter(value)
		return command.AppendCells([]byte{counterFormat}, cells)
	case storage.SectionLeaves:
		for _, t := range s.trees.byID {
			for i := range uint16(merkle.Buckets) {
				if t.key(i).Bytes == key.Bytes {
					return encodeLeaf(t.At(i))
				}
			}
		}
		return nil
	case storage.SectionSystem:
		return documentOf(s.cluster)
	default:
		return value
	}
}

// documentOf is the stored form of the one document of a state.
func documentOf(s *system.State) []byte {
	switch {
	case s.Genesis != nil:
		return system.AppendGenesis(nil, *s.Genesis)
	case s.Database != nil:
		return system.AppendDatabase(nil, *s.Database)
	case len(s.Members) == 1:
		return system.AppendMember(nil, s.Members[0])
	case len(s.Documents) == 1:
		return system.AppendDocument(nil, s.Documents[0])
	default:
		return system.AppendTable(nil, s.Table)
	}
}
