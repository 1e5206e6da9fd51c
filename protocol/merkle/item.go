package merkle

import (
	"slices"
	"strconv"

	"github.com/quorate/quorate/protocol"
)

// LWWItem is the hash of one last-write-wins record, tombstones included. The value
// and the lifetime take no part in it.
func LWWItem(key string, ts protocol.Timestamp) uint32 {
	var scratch [128]byte
	b := append(scratch[:0], key...)
	b = append(b, ':')
	return hash(ts.AppendText(b))
}

// ORItem is the hash of one key of an observed-remove map: of its live records,
// expired ones included. It is 0 without records: the key has no item then. records
// is not modified.
func ORItem(key string, records []protocol.ORRecord) uint32 {
	if len(records) == 0 {
		return 0
	}
	return hash(AppendORText(nil, key, records))
}

// AppendORText appends the text that ORItem hashes.
func AppendORText(dst []byte, key string, records []protocol.ORRecord) []byte {
	byTag := func(a, b protocol.ORRecord) int { return protocol.CompareText(a.Tag, b.Tag) }
	if !slices.IsSortedFunc(records, byTag) {
		records = slices.Clone(records)
		slices.SortStableFunc(records, byTag)
	}
	dst = append(append(dst, "key:"...), key...)
	for i := range records {
		rec := &records[i]
		dst = append(append(dst, '|'), rec.Tag...)
		dst = protocol.AppendValueText(append(dst, ':'), rec.Value)
		dst = rec.Timestamp.AppendText(append(dst, ':'))
		if rec.TTLMillis != 0 {
			dst = strconv.AppendInt(append(dst, ":ttl="...), rec.TTLMillis, 10)
		}
	}
	return dst
}

func hash(text []byte) uint32 { return protocol.HashBytes(text) }
