package merkletest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

func TestHashesAreThoseAskedFor(t *testing.T) {
	keys := map[string]bool{}
	for _, key := range Keys(50) {
		keys[key] = true
		require.Equal(t, protocol.Hash("all"), protocol.Hash(key))
	}
	require.Len(t, keys, 50)
	for _, item := range []uint32{0, 1, 0x80000000, 0xffffffff} {
		require.Equal(t, item, unmix(protocol.Mix(item)))
		ts := Stamp("k", 7, item)
		require.Equal(t, int64(7), ts.Millis)
		require.Equal(t, item, merkle.LWWItem("k", ts))
	}
	was, is := merkle.LWWItem("a", protocol.Timestamp{Millis: 1}), merkle.LWWItem("a", protocol.Timestamp{Millis: 2})
	other := merkle.LWWItem("b", protocol.Timestamp{Millis: 1})
	back := merkle.LWWItem("b", Cancelling("b", 9, other, was, is))
	require.Equal(t, protocol.Combine(was, other), protocol.Combine(is, back))
}
