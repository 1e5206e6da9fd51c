package merkle_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

func TestATreeDependsOnItsItemsAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Sparse and dense trees, and those that pass from one to the other.
		n := rapid.IntRange(0, 2000).Draw(t, "keys")
		var grown, fresh merkle.Tree
		items := map[string]uint32{}
		for i := range n {
			key := fmt.Sprint("key", i)
			bucket := merkle.BucketOf(key)
			grown.Update(bucket, 0, uint32(i)*7, 1, 1)
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				grown.Update(bucket, uint32(i)*7, 0, -1, 2)
				continue
			}
			grown.Update(bucket, uint32(i)*7, uint32(i), 0, 2)
			items[key] = uint32(i)
		}
		for key, item := range items {
			fresh.Update(merkle.BucketOf(key), 0, item, 1, 3)
		}
		var a, b merkle.Leaves
		grown.AddTo(&a)
		fresh.AddTo(&b)
		if a != b || a.Root() != grow(items).Root() {
			t.Fatalf("trees of %d keys differ", len(items))
		}
	})
}

func TestANodeWithoutItemsIsListedWhileItHasKeys(t *testing.T) {
	var tree merkle.Tree
	tree.Update(0x872, 0, 5, 1, 1)
	tree.Update(0x872, 5, 0, 0, 2)
	leaves := new(merkle.Leaves)
	tree.AddTo(leaves)
	require.Zero(t, leaves.Root())
	require.Equal(t, map[string]uint32{"8": 0}, leaves.Children("", false))
	require.Equal(t, map[string]uint32{"7": 0}, leaves.Children("8", false))
	require.Equal(t, map[string]uint32{"2": 0}, leaves.Children("87", false))
	require.Len(t, leaves.Children("8", true), 16)
	require.Empty(t, leaves.Children("9", false))
	require.Equal(t, merkle.Bucket{Keys: 1, Changed: 2}, tree.At(0x872))
}

func TestPaths(t *testing.T) {
	for _, bad := range []string{"8722", "A", "g", "/", ":", "8 ", "\xff", "é"} {
		_, _, err := merkle.ParsePath(bad)
		require.ErrorIs(t, err, merkle.ErrPath, "%q", bad)
	}
	for _, inner := range []string{"", "8", "87"} {
		_, leaf, err := merkle.ParsePath(inner)
		require.NoError(t, err)
		require.False(t, leaf)
	}
	for bucket := range uint16(merkle.Buckets) {
		got, leaf, err := merkle.ParsePath(merkle.Path(bucket))
		require.NoError(t, err)
		require.True(t, leaf)
		require.Equal(t, bucket, got)
	}
	require.Equal(t, "872", merkle.Path(merkle.BucketOf("alice")))
}

func BenchmarkRoot(b *testing.B) {
	var tree merkle.Tree
	for i := range 1_000_000 {
		key := fmt.Sprint("key", i)
		tree.Update(merkle.BucketOf(key), 0, merkle.LWWItem(key, protocol.Timestamp{}), 1, 1)
	}
	for b.Loop() {
		leaves := new(merkle.Leaves)
		tree.AddTo(leaves)
		_ = leaves.Root()
	}
}

func BenchmarkUpdate(b *testing.B) {
	var tree merkle.Tree
	key, ts := "todos/123456", protocol.Timestamp{Millis: 1_700_000_000_000, Counter: 3, NodeID: "7b0e4d52-8f3a-4c55-9d0e-1f2a3b4c5d6e"}
	b.ReportAllocs()
	for b.Loop() {
		tree.Update(merkle.BucketOf(key), merkle.LWWItem(key, ts), merkle.LWWItem(key, ts), 0, 1)
	}
}

// FuzzPath holds that a text is refused, or is the path of a node that can be listed.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"", "8", "87", "872", "8722", "G", "\xff"} {
		f.Add(seed)
	}
	var tree merkle.Tree
	tree.Update(0x872, 0, 5, 1, 1)
	leaves := new(merkle.Leaves)
	tree.AddTo(leaves)
	f.Fuzz(func(t *testing.T, path string) {
		bucket, leaf, err := merkle.ParsePath(path)
		if err != nil {
			require.ErrorIs(t, err, merkle.ErrPath)
			return
		}
		if leaf {
			require.Equal(t, path, merkle.Path(bucket))
			return
		}
		require.Len(t, leaves.Children(path, true), 16)
		require.Contains(t, []int{0, 1}, len(leaves.Children(path, false)))
	})
}
