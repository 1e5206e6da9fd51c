package ws

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// capturedFrames are frames that clients in the field have sent.
func capturedFrames(t testing.TB) [][]byte {
	t.Helper()
	b, err := os.ReadFile("../../protocol/testdata/msgpack_frames.json")
	require.NoError(t, err)
	var file struct {
		Cases []struct{ Kind, Hex string }
	}
	require.NoError(t, json.Unmarshal(b, &file))
	var frames [][]byte
	for _, c := range file.Cases {
		if c.Kind != "captured" {
			continue
		}
		frame, err := hex.DecodeString(c.Hex)
		require.NoError(t, err)
		frames = append(frames, frame)
	}
	require.NotEmpty(t, frames)
	return frames
}
