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

// appendRecordKey appends the storage key of a record: the map name with its
// length in front, then the key. So any bytes are legal in both, and the keys of
// one map are one range, in key order.
func appendRecordKey(dst []byte, mapName, key string) []byte {
	dst = codec.AppendText(dst, mapName)
	return append(dst, key...)
}

// splitRecordKey takes a storage key apart. The results alias it.
func splitRecordKey(bytes string) (mapName, key string, err error) {
	// The uvarint needs a byte slice; ten bytes hold any.
	var head [binary.MaxVarintLen64]byte
	n, width := binary.Uvarint(head[:copy(head[:], bytes)])
	if width <= 0 || n > uint64(len(bytes)-width) {
		return "", "", fmt.Errorf("record key %q: %w", bytes, storage.ErrCorrupt)
	}
	rest := bytes[width:]
	return rest[:n], rest[n:], nil
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
	mapName, recordKey, err := splitRecordKey(key)
	if err != nil {
		return err
	}
	rec, err := decodeRecord(value)
	if err != nil {
		return err
	}
	s.trees.of(mapName, merkle.Records).Update(merkle.BucketOf(recordKey), 0, rec.item, 1, rec.index)
	return nil
}

// mapPrefix is the common prefix of the storage keys of a map.
func mapPrefix(mapName string) string {
	return string(appendRecordKey(nil, mapName, ""))
}
