package bolt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm/storage"
)

// FuzzDecodeChunk holds that a chunk is refused, or one that appendChunk writes.
func FuzzDecodeChunk(f *testing.F) {
	encoded, _ := appendChunk(nil, chunk{group: 3, generation: 7, items: []storage.Item{
		{Key: storage.Key{Section: storage.SectionRecords, Bytes: "a"}, Value: []byte("v")},
		{Key: storage.Key{Section: storage.SectionRecords, Bytes: ""}},
		{Key: storage.Key{Section: storage.SectionSets, Bytes: "b"}, Value: []byte{}},
	}})
	f.Add(encoded)
	f.Add([]byte{0, 0, 5, 1, 'k', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		c, err := decodeChunk(encoded)
		if err != nil {
			require.ErrorIs(t, err, storage.ErrCorrupt)
			return
		}
		for rest := c.items; ; {
			part, n := appendChunk(nil, chunk{group: c.group, generation: c.generation, items: rest})
			again, err := decodeChunk(part)
			require.NoError(t, err)
			require.Equal(t, c.group, again.group)
			require.Equal(t, c.generation, again.generation)
			require.Equal(t, rest[:n], again.items[:n])
			if rest = rest[n:]; len(rest) == 0 {
				return
			}
		}
	})
}
