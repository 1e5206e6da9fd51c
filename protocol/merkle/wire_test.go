package merkle_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol/merkle"
)

func TestLeavesAddUpAfterTheirJourney(t *testing.T) {
	for _, n := range []int{0, 1, 300, 9000} {
		var tree merkle.Tree
		for i := range n {
			key := fmt.Sprint("key", i)
			tree.Update(merkle.BucketOf(key), 0, uint32(i), 1, 1)
		}
		var want, got merkle.Leaves
		tree.AddTo(&want)
		b := want.Append(nil)
		require.NoError(t, got.AddEncoded(b))
		require.Equal(t, want, got)
		require.NoError(t, got.AddEncoded(b))
		want.Add(&want)
		require.Equal(t, want, got, "a second share adds to the first")
		if n > 0 {
			require.ErrorIs(t, got.AddEncoded(b[:len(b)-1]), merkle.ErrEncoding)
		}
	}
}

func FuzzLeaves(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6})
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var leaves, again merkle.Leaves
		if leaves.AddEncoded(b) == nil {
			require.NoError(t, again.AddEncoded(leaves.Append(nil)))
			require.Equal(t, leaves, again)
		}
	})
}
