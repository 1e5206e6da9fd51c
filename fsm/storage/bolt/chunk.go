package bolt

import (
	"encoding/binary"
	"fmt"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/storage"
)

// chunkBytes is where a chunk ends: two of them fill a page of 4 KiB. bbolt rewrites
// the last leaf with every append, so that larger values would be written several
// times.
const chunkBytes = 1990

// chunk is some of the items of one batch.
type chunk struct {
	group      uint32
	generation uint64
	items      []storage.Item
}

// appendChunk appends the first items of a batch, as many as a chunk takes and at
// least one, and returns how many they are.
func appendChunk(dst []byte, c chunk) (encoded []byte, items int) {
	start := len(dst)
	dst = binary.AppendUvarint(dst, uint64(c.group))
	dst = binary.AppendUvarint(dst, c.generation)
	for i, it := range c.items {
		size := len(it.Key.Bytes) + len(it.Value) + 10
		if i > 0 && len(dst)-start+size > chunkBytes {
			return dst, i
		}
		dst = append(dst, byte(it.Key.Section))
		dst = codec.AppendText(dst, it.Key.Bytes)
		if it.Value == nil {
			dst = binary.AppendUvarint(dst, 0)
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(len(it.Value))+1)
		dst = append(dst, it.Value...)
	}
	return dst, len(c.items)
}

// decodeChunk reads what appendChunk wrote. The values alias encoded.
func decodeChunk(encoded []byte) (chunk, error) {
	r := codec.NewReader(encoded)
	c := chunk{group: uint32(r.Uvarint()), generation: r.Uvarint()}
	for r.Len() > 0 && r.Err() == nil {
		it := storage.Item{Key: storage.Key{Section: storage.Section(r.Byte()), Bytes: r.Text()}}
		if n := r.Uvarint(); n > 0 {
			it.Value = r.Take(int(min(n-1, uint64(r.Len()+1))))
		}
		c.items = append(c.items, it)
	}
	if err := r.Err(); err != nil {
		return chunk{}, fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	return c, nil
}
