package protocol_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
)

// addFrames seeds a fuzz target with frames recorded from clients, messages of each
// kind, and broken ones.
func addFrames(f *testing.F) {
	for _, v := range vectors[frameVector](f, "msgpack_frames.json") {
		f.Add(unhex(f, v.Hex))
	}
	fill := &filler{rng: rand.New(rand.NewPCG(1, 1)), full: true}
	for _, k := range protocol.Kinds() {
		b := mustAppend(f, fill.message(k))
		f.Add(b)
		f.Add(b[:len(b)/2])
		f.Add(mustAppend(f, protocol.NewMessage(k)))
	}
	f.Add(clientOpFrame(f, nil))
	f.Add(nested(300))
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x82, 0x01, 0xd4, 0, 0, 0xa1, 'a', 0xc7, 1, 5, 9})
}

// FuzzDecode holds that any input is either refused with a typed error or becomes
// a message that encodes to a frame with the same meaning.
func FuzzDecode(f *testing.F) {
	addFrames(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		msg, err := protocol.Decode(frame)
		if err != nil {
			var de *protocol.DecodeError
			if !errors.Is(err, protocol.ErrUnknownKind) && !errors.As(err, &de) {
				t.Fatalf("untyped error: %v", err)
			}
			return
		}
		first, err := protocol.Append(nil, msg)
		require.NoError(t, err)
		if malformed(msg) {
			return
		}
		again, err := protocol.Decode(first)
		require.NoError(t, err, "own frame %x", first)
		second, err := protocol.Append(nil, again)
		require.NoError(t, err)
		require.True(t, bytes.Equal(first, second), "%x\n%x", first, second)
	})
}

// malformed reports whether msg holds an operation that was not understood.
func malformed(msg protocol.Message) bool {
	switch msg := msg.(type) {
	case *protocol.ClientOpMessage:
		return msg.Op.Err != nil
	case *protocol.OpBatch:
		for i := range msg.Ops {
			if msg.Ops[i].Err != nil {
				return true
			}
		}
	}
	return false
}

// FuzzGuard holds that the guard never panics and that a size it reports is exact.
func FuzzGuard(f *testing.F) {
	addFrames(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := protocol.Guard(b)
		if err != nil {
			return
		}
		exact, err := protocol.Guard(b[:s.Size])
		require.NoError(t, err)
		require.Equal(t, s, exact)
		if s.Size > 0 {
			_, err = protocol.Guard(b[:s.Size-1])
			require.ErrorIs(t, err, protocol.ErrTruncated)
		}
	})
}

// FuzzSplitBatch holds that the frames are parts of the data, in order and without
// overlap, and that only a whole tail is left without an error.
func FuzzSplitBatch(f *testing.F) {
	f.Add(protocol.AppendBatch(protocol.AppendBatch(nil, []byte{1, 2}), nil))
	f.Add([]byte{0, 0, 0, 9, 1})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		frames, err := protocol.SplitBatch(data)
		var joined []byte
		for _, frame := range frames {
			joined = protocol.AppendBatch(joined, frame)
		}
		require.True(t, bytes.HasPrefix(data, joined))
		if err == nil {
			require.Len(t, joined, len(data))
		}
	})
}
