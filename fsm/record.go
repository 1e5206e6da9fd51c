package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// recordFormat is the first byte of every stored record.
const recordFormat = 2

// recordOverhead is room for a record's fields beside node id and value, as they
// usually are; it only sizes buffers.
const recordOverhead = 32

// appendName appends the storage key of what a map has by name: the map name with its
// length in front, then the name. So any bytes are legal in both, and what one map has
// is one range, in the order of the names.
func appendName(dst []byte, mapName, name string) []byte {
	dst = codec.AppendText(dst, mapName)
	return append(dst, name...)
}

// splitName takes a key of appendName apart. The results alias it.
func splitName(bytes string) (mapName, name string, err error) {
	// The uvarint needs a byte slice; ten bytes hold any.
	var head [binary.MaxVarintLen64]byte
	n, width := binary.Uvarint(head[:copy(head[:], bytes)])
	// A length in more bytes than it needs would give one name two keys.
	if width <= 0 || width > 1 && bytes[width-1] == 0 || n > uint64(len(bytes)-width) {
		return "", "", fmt.Errorf("key %q: %w", bytes, storage.ErrCorrupt)
	}
	rest := bytes[width:]
	return rest[:n], rest[n:], nil
}

// appendPlace appends the storage key of a record or a set. The keys of a map are in
// the order of the buckets of its hash tree, so that a leaf is read in one go.
func appendPlace(dst []byte, mapName, key string) []byte {
	dst = appendBucket(dst, mapName, merkle.BucketOf(key))
	return append(dst, key...)
}

// appendBucket appends the common prefix of the places in a bucket.
func appendBucket(dst []byte, mapName string, bucket uint16) []byte {
	return binary.BigEndian.AppendUint16(codec.AppendText(dst, mapName), bucket)
}

// splitPlace takes a key of appendPlace apart. The results alias it.
func splitPlace(bytes string) (mapName, key string, err error) {
	mapName, rest, err := splitName(bytes)
	if err == nil && (len(rest) < 2 || binary.BigEndian.Uint16([]byte(rest[:2])) != merkle.BucketOf(rest[2:])) {
		err = fmt.Errorf("place %q: %w", bytes, storage.ErrCorrupt)
	}
	if err != nil {
		return "", "", err
	}
	return mapName, rest[2:], nil
}

// keyOverhead is more than what any item key has beside its names: their lengths, a
// bucket, or the place of a grave.
const keyOverhead = 32

// listed is the value of items that say all in their key.
var listed = []byte{1}

// nameKey is the item that lists the key of a record.
func nameKey(mapName, key string) storage.Key {
	return storage.Key{Section: storage.SectionKeys, Bytes: string(appendName(nil, mapName, key))}
}

// loadKey is the row of keys in sections.
func loadKey(_ *resident, key string, value []byte) error {
	_, _, err := splitName(key)
	if err == nil && string(value) != string(listed) {
		err = fmt.Errorf("key %q: %w", key, storage.ErrCorrupt)
	}
	return err
}

// stored is a record as it lies in the state.
type stored struct {
	protocol.Record
	// index is the log index of the entry that stored it.
	index uint64
	// removed is, of a tombstone, the millis of that entry's stamp: when the deletion
	// came here, however old it is.
	removed int64
	// item is the record's hash in its map's tree.
	item uint32
}

// encodeRecord encodes rec into memory of its own. A tombstone has no value bytes.
func encodeRecord(rec stored) []byte {
	ts := rec.Timestamp
	b := make([]byte, 0, recordOverhead+len(ts.NodeID)+len(rec.Value))
	b = append(b, recordFormat)
	b = binary.AppendUvarint(b, rec.index)
	b = binary.AppendVarint(b, rec.removed)
	b = binary.LittleEndian.AppendUint32(b, rec.item)
	b = binary.AppendVarint(b, ts.Millis)
	b = binary.AppendVarint(b, ts.Counter)
	b = binary.AppendVarint(b, rec.TTLMillis)
	b = codec.AppendText(b, ts.NodeID)
	return append(b, rec.Value...)
}

// decodeRecord decodes what encodeRecord wrote. The result aliases b, which must never
// change.
func decodeRecord(b []byte) (stored, error) {
	r := codec.NewReader(b)
	if format := r.Byte(); format != recordFormat {
		r.Fail("format %d", format)
	}
	rec := stored{index: r.Uvarint(), removed: r.Varint(), item: r.Uint32()}
	rec.Timestamp = protocol.Timestamp{Millis: r.Varint(), Counter: r.Varint()}
	rec.TTLMillis = r.Varint()
	rec.Timestamp.NodeID = r.TextView()
	if err := r.Err(); err != nil {
		return stored{}, fmt.Errorf("decode record: %w: %w", storage.ErrCorrupt, err)
	}
	if r.Len() > 0 {
		rec.Value = r.Rest()
	}
	return rec, nil
}

// loadRecord is the row of records in sections: the record enters its map's tree.
func loadRecord(s *resident, key string, value []byte) error {
	mapName, recordKey, err := splitPlace(key)
	if err != nil {
		return err
	}
	rec, err := decodeRecord(value)
	if err != nil {
		return err
	}
	s.trees.update(mapName, merkle.Records, merkle.BucketOf(recordKey), 0, rec.item, 1, rec.index)
	return nil
}
