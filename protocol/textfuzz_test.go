package protocol_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
)

// FuzzTexts holds that a text is refused, or is that of the timestamp, level or kind that it
// is read as.
func FuzzTexts(f *testing.F) {
	for _, text := range []string{
		"1760000000123:0:9b1c", "0:0:", "007:1:n", "9007199254740991:9007199254740992:n", "+1:2:n", "1:2:a:b", "",
		"MEMORY", "PERSISTED", "persisted", "OP_BATCH", "GC_PRUNE", "Kind(1)", "WriteConcern(9)",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if ts, err := protocol.ParseTimestamp(text); err != nil {
			require.ErrorIs(t, err, protocol.ErrValue)
			require.Zero(t, ts)
		} else {
			again, err := protocol.ParseTimestamp(ts.String())
			require.NoError(t, err)
			require.Equal(t, ts, again)
			require.GreaterOrEqual(t, min(ts.Millis, ts.Counter), int64(0))
			require.LessOrEqual(t, max(ts.Millis, ts.Counter), int64(protocol.MaxSafeInteger))
		}
		if level, err := protocol.ParseWriteConcern(text); err != nil {
			require.ErrorIs(t, err, protocol.ErrValue)
		} else {
			require.Equal(t, text, level.String())
		}
		if kind, ok := protocol.ParseKind(text); ok {
			require.Equal(t, text, kind.String())
		}
	})
}

// FuzzDecodeAnswer holds that a client refuses with a typed error what a server sends, or
// reads a message that means the same when it is written again.
func FuzzDecodeAnswer(f *testing.F) {
	addFrames(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		msg, err := protocol.DecodeAnswer(frame)
		if err != nil {
			var malformed *protocol.DecodeError
			if !errors.Is(err, protocol.ErrUnknownKind) && !errors.As(err, &malformed) {
				t.Fatalf("untyped error: %v", err)
			}
			return
		}
		if malformed(msg) {
			return
		}
		first, err := protocol.Append(nil, msg)
		require.NoError(t, err)
		again, err := protocol.DecodeAnswer(first)
		require.NoError(t, err)
		second, err := protocol.Append(nil, again)
		require.NoError(t, err)
		require.True(t, bytes.Equal(first, second), "%x\n%x", first, second)
	})
}
