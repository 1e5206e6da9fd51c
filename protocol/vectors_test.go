package protocol_test

import (
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
)

func TestHashVectors(t *testing.T) {
	type vector struct {
		Kind, Unit, UTF16 string
		Input             json.RawMessage // a text, a hash or a list of hashes
		Times             int
		Hash, Output      uint32
	}
	for _, v := range vectors[vector](t, "hash.json") {
		switch v.Kind {
		case "hash":
			require.Equal(t, v.Hash, protocol.Hash(input[string](t, v.Input)), "%s", v.Input)
		case "hashRepeat":
			require.Equal(t, v.Hash, protocol.Hash(strings.Repeat(v.Unit, v.Times)), "%q x %d", v.Unit, v.Times)
		case "hashUnits":
			units := utf16Units(t, v.UTF16)
			if text := string(utf16.Decode(units)); !strings.Contains(text, "\ufffd") {
				require.Equal(t, v.Hash, protocol.Hash(text), v.UTF16)
			} // else an unpaired surrogate, which no UTF-8 text can hold
		case "mix":
			require.Equal(t, v.Output, protocol.Mix(input[uint32](t, v.Input)), "%s", v.Input)
		case "combine":
			require.Equal(t, v.Output, protocol.Combine(input[[]uint32](t, v.Input)...), "%s", v.Input)
		default:
			t.Errorf("vector of unknown kind %q", v.Kind)
		}
	}
}

func input[T any](t *testing.T, raw json.RawMessage) (v T) {
	require.NoError(t, json.Unmarshal(raw, &v))
	return v
}

func utf16Units(t *testing.T, s string) []uint16 {
	b := unhex(t, s)
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.BigEndian.Uint16(b[2*i:])
	}
	return units
}

func TestPartitionVectors(t *testing.T) {
	type vector struct {
		Key             string
		Hash, Partition uint32
	}
	for _, v := range vectors[vector](t, "partition.json") {
		require.Equal(t, v.Hash, protocol.Hash(v.Key), "%q", v.Key)
		require.Equal(t, v.Partition, protocol.Partition(v.Key), "%q", v.Key)
	}
}

func TestTimestampVectors(t *testing.T) {
	type vector struct {
		Kind, Text     string
		A, B           protocol.Timestamp
		Timestamp      *protocol.Timestamp
		Expect         int
		Error, Lenient bool
	}
	for _, v := range vectors[vector](t, "hlc.json") {
		switch v.Kind {
		case "compare":
			if !plainASCII(v.A.NodeID) || !plainASCII(v.B.NodeID) {
				continue // ordered by the client's locale; see CompareNodeIDs
			}
			require.Equal(t, v.Expect, v.A.Compare(v.B), "%s against %s", v.A, v.B)
			require.Equal(t, -v.Expect, v.B.Compare(v.A), "%s against %s", v.B, v.A)
		case "format":
			require.Equal(t, v.Text, v.Timestamp.String())
		case "parse":
			got, err := protocol.ParseTimestamp(v.Text)
			if v.Error {
				require.ErrorIs(t, err, protocol.ErrValue, "%q", v.Text)
			} else if !v.Lenient || err == nil {
				require.NoError(t, err, "%q", v.Text)
				require.Equal(t, *v.Timestamp, got, "%q", v.Text)
			}
		}
	}
}

func plainASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// frameVector is a case of msgpack_frames.json.
type frameVector struct {
	Kind, Name, Hex, Data string
	Error                 bool
	DecodesTo             json.RawMessage
	Inner                 []struct{ Hex string }
}

func TestGuardAcceptsWhatClientsWriteAndRead(t *testing.T) {
	for _, v := range vectors[frameVector](t, "msgpack_frames.json") {
		b := unhex(t, v.Hex)
		s, err := protocol.Guard(b)
		if v.Error && v.Name != "trailing bytes" && v.Name != "unknown extension" {
			require.Error(t, err, v.Name)
			continue
		}
		require.NoError(t, err, v.Name)
		if v.Name != "trailing bytes" {
			require.Equal(t, len(b), s.Size, v.Name)
		}
	}
}

func TestClientFramesDecode(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range vectors[frameVector](t, "msgpack_frames.json") {
		var want map[string]any
		if len(v.DecodesTo) == 0 || json.Unmarshal(v.DecodesTo, &want) != nil || want["type"] == nil {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			msg, err := protocol.Decode(unhex(t, v.Hex))
			require.NoError(t, err)
			require.Equal(t, want["type"], msg.Kind().String())
			seen[msg.Kind().String()] = true
			contains(t, "", unpack(t, mustAppend(t, msg)), want)
		})
	}
	require.Greater(t, len(seen), 20)
}

// contains checks that got has everything that want has, except for fields that
// the protocol ignores and for optional numbers that are zero.
func contains(t *testing.T, path string, got, want any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		if b, ok := got.([]byte); ok { // a binary field, written as a map of digits
			require.Len(t, b, len(want), path)
			for i := range b {
				require.EqualValues(t, want[strconv.Itoa(i)], b[i], path)
			}
			return
		}
		fields, ok := got.(map[string]any)
		require.True(t, ok, "%s is %T", path, got)
		for k, v := range want {
			if marker, ok := v.(map[string]any); ok && (marker["$undefined"] != nil || marker["$bin"] != nil) {
				continue
			}
			if _, ok := fields[k]; !ok && (k == "synced" || v == 0.0) {
				continue
			}
			contains(t, path+"."+k, fields[k], v)
		}
	case []any:
		list, ok := got.([]any)
		require.True(t, ok, "%s is %T", path, got)
		require.Len(t, list, len(want), path)
		for i := range want {
			contains(t, path+"["+strconv.Itoa(i)+"]", list[i], want[i])
		}
	default:
		require.Equal(t, want, got, path)
	}
}

func TestBatchVectors(t *testing.T) {
	for _, v := range vectors[frameVector](t, "msgpack_frames.json") {
		if v.Kind != "batch" {
			continue
		}
		batch := decodeAs[*protocol.Batch](t, unhex(t, v.Hex))
		require.Equal(t, unhex(t, v.Data), []byte(batch.Data), v.Name)
		frames, err := protocol.SplitBatch(batch.Data)
		if strings.Contains(v.Name, "little-endian") {
			continue // another framing, which servers need not understand
		}
		require.Equal(t, strings.Contains(v.Name, "truncated"), err != nil, v.Name)
		require.Len(t, frames, len(v.Inner), v.Name)
		for i, inner := range v.Inner {
			require.Equal(t, unhex(t, inner.Hex), frames[i], v.Name)
			_, err := protocol.Decode(frames[i])
			require.NoError(t, err, v.Name)
		}
	}
}
