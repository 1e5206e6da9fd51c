package fsm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol/merkle"
)

// FuzzParseGrave holds that a key is refused, or that of the grave that it is read as.
func FuzzParseGrave(f *testing.F) {
	f.Add(grave{1, 2, merkle.Records, "m", "k"}.key().Bytes)
	f.Add(grave{1 << 40, 1 << 50, merkle.Sets, "", "tag"}.key().Bytes)
	f.Add("0123456789abcdef\x01\xff\xff\xff\xff\x0f")
	f.Fuzz(func(t *testing.T, key string) {
		g, err := parseGrave(key)
		if err != nil {
			require.ErrorIs(t, err, storage.ErrCorrupt)
			return
		}
		again, err := parseGrave(g.key().Bytes)
		require.NoError(t, err)
		require.Equal(t, g, again)
	})
}
