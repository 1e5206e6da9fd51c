package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// The first bytes of stored sets and tags.
const (
	setFormat = 1
	tagFormat = 1
)

// maxSetBytes bounds the encoded records of one key of an observed-remove map. A
// change of a set rewrites it, and clients hash it as a whole.
const maxSetBytes = 4 << 20

// minSetRecord is the least number of bytes that a record takes in a set.
const minSetRecord = 6

// orSet is one key of an observed-remove map.
type orSet struct {
	// index is the log index of the set's latest change.
	index uint64
	// item is the hash of the key in its tree, 0 without records.
	item uint32
	// removed is the number of removed tags that belong to the key.
	removed uint64
	// records are the live ones, by tag in the order of CompareText.
	records []protocol.ORRecord
}

// exists reports whether the key is part of the map at all.
func (s *orSet) exists() bool { return len(s.records) > 0 || s.removed > 0 }

// find returns the place of the record with tag, or where it would be.
func (s *orSet) find(tag string) (at int, found bool) {
	return slices.BinarySearchFunc(s.records, tag, func(rec protocol.ORRecord, tag string) int {
		return protocol.CompareText(rec.Tag, tag)
	})
}

// recordSize is what a record takes in an encoded set, at most.
func recordSize(rec *protocol.ORRecord) int {
	const numbers = 3*binary.MaxVarintLen64 + 3*binary.MaxVarintLen32
	return numbers + len(rec.Tag) + len(rec.Timestamp.NodeID) + len(rec.Value)
}

// recordWork is what a record adds to the work of hashing its set, in the measure of
// protocol.ValueTextWork.
func recordWork(rec *protocol.ORRecord) int {
	const texts = 128 // those of numbers and timestamp
	return texts + protocol.ValueTextWork(rec.Value)
}

func encodeSet(s *orSet) []byte {
	size := 40
	for i := range s.records {
		size += recordSize(&s.records[i])
	}
	b := append(make([]byte, 0, size), setFormat)
	b = binary.AppendUvarint(b, s.index)
	b = binary.LittleEndian.AppendUint32(b, s.item)
	b = binary.AppendUvarint(b, s.removed)
	b = binary.AppendUvarint(b, uint64(len(s.records)))
	for i := range s.records {
		rec := &s.records[i]
		b = codec.AppendText(b, rec.Tag)
		b = binary.AppendVarint(b, rec.Timestamp.Millis)
		b = binary.AppendVarint(b, rec.Timestamp.Counter)
		b = codec.AppendText(b, rec.Timestamp.NodeID)
		b = binary.AppendVarint(b, rec.TTLMillis)
		b = codec.AppendBytes(b, rec.Value)
	}
	return b
}

// decodeSet decodes what encodeSet wrote. The result aliases b, which must never change.
func decodeSet(b []byte) (orSet, error) {
	r := codec.NewReader(b)
	if format := r.Byte(); format != setFormat {
		r.Fail("format %d", format)
	}
	s := orSet{index: r.Uvarint(), item: r.Uint32(), removed: r.Uvarint()}
	if n := r.Count(minSetRecord); n > 0 {
		s.records = make([]protocol.ORRecord, n)
	}
	for i := range s.records {
		rec := &s.records[i]
		rec.Tag = r.TextView()
		rec.Timestamp = protocol.Timestamp{Millis: r.Varint(), Counter: r.Varint(), NodeID: r.TextView()}
		rec.TTLMillis = r.Varint()
		rec.Value = r.Bytes()
	}
	if err := r.End(); err != nil {
		return orSet{}, fmt.Errorf("decode set: %w: %w", storage.ErrCorrupt, err)
	}
	return s, nil
}

// loadSet is the row of sets in sections: the key enters its map's tree.
func loadSet(s *resident, key string, value []byte) error {
	mapName, setKey, err := splitPlace(key)
	if err != nil {
		return err
	}
	set, err := decodeSet(value)
	if err != nil {
		return err
	}
	s.trees.update(mapName, merkle.Sets, merkle.BucketOf(setKey), 0, set.item, 1, set.index)
	return nil
}

// TagState is what a group knows of a tag of an observed-remove map.
type TagState uint8

// The states of tags. They are stored.
const (
	TagUnknown  TagState = 0 // there is no item
	TagLive     TagState = 1 // a record under the key carries it
	TagRemoved  TagState = 2 // removed; it belonged to the key
	TagHomeless TagState = 3 // removed; its key never became known here
)

// orTag is one tag of an observed-remove map.
type orTag struct {
	state TagState
	key   string
	// index and removed are, of a removed tag, the log index and the stamp's millis of
	// the entry that removed it.
	index   uint64
	removed int64
}

func encodeTag(t orTag) []byte {
	b := make([]byte, 0, 24+len(t.key))
	b = append(b, tagFormat, byte(t.state))
	b = binary.AppendUvarint(b, t.index)
	b = binary.AppendVarint(b, t.removed)
	return append(b, t.key...)
}

// decodeTag decodes what encodeTag wrote; nil is an unknown tag. The result aliases b,
// which must never change.
func decodeTag(b []byte) (orTag, error) {
	if b == nil {
		return orTag{}, nil
	}
	r := codec.NewReader(b)
	if format := r.Byte(); format != tagFormat {
		r.Fail("format %d", format)
	}
	t := orTag{state: TagState(r.Byte()), index: r.Uvarint(), removed: r.Varint()}
	if t.state == TagUnknown || t.state > TagHomeless {
		r.Fail("state %d", t.state)
	}
	if err := r.Err(); err != nil {
		return orTag{}, fmt.Errorf("decode tag: %w: %w", storage.ErrCorrupt, err)
	}
	t.key = codec.View(r.Rest())
	return t, nil
}

// loadTag is the row of tags in sections.
func loadTag(_ *resident, key string, value []byte) error {
	_, _, err := splitName(key)
	if err == nil {
		_, err = decodeTag(value)
	}
	return err
}

// removedPrefix is the common prefix of the items that list the removed tags of a key.
func removedPrefix(mapName, key string) []byte {
	b := codec.AppendText(make([]byte, 0, len(mapName)+len(key)+64), mapName)
	return codec.AppendText(b, key)
}

func removedKey(mapName, key, tag string) storage.Key {
	return storage.Key{Section: storage.SectionRemoved, Bytes: string(append(removedPrefix(mapName, key), tag...))}
}

// loadRemoved is the row of removed tags in sections.
func loadRemoved(_ *resident, key string, value []byte) error {
	_, rest, err := splitName(key)
	if err == nil {
		_, _, err = splitName(rest)
	}
	if err == nil && string(value) != string(listed) {
		err = fmt.Errorf("removed tag %q: %w", key, storage.ErrCorrupt)
	}
	return err
}
