package merkle

import (
	"fmt"

	"github.com/quorate/quorate/protocol"
)

// Kind tells the two trees of a map name apart. The numbers are on disk.
type Kind uint8

// The trees of a map.
const (
	Records Kind = 1 // of the last-write-wins records
	Sets    Kind = 2 // of the observed-remove sets
)

// Buckets is the number of leaf buckets of a tree.
const Buckets = 4096

// Digits is the length of the path of a leaf bucket.
const Digits = 3

// BucketOf is the leaf bucket of key, from 0 to Buckets-1: the first Digits hex digits
// of the key's hash.
func BucketOf(key string) uint16 { return uint16(protocol.Hash(key) >> 20) }

// Bucket is one leaf bucket of a group's share of a map.
type Bucket struct {
	// Sum is the sum of the mixed hashes of the bucket's items.
	Sum uint32
	// Keys is the number of keys in the bucket, those without an item included.
	Keys uint32
	// Changed is a log index at or above that of the latest change of a key in it.
	Changed uint64
}

// sparseBuckets is how many buckets a Tree keeps one by one before it makes room for
// all of them.
const sparseBuckets = 256

// Tree is the leaf buckets of one map in one group. Its memory is bounded by the
// number of buckets, not of keys. The zero value is an empty tree. It is not safe for
// concurrent use.
type Tree struct {
	sparse map[uint16]*Bucket
	dense  *[Buckets]Bucket
}

// At is the bucket number i, which must not be modified; a zero one if it is empty.
func (t *Tree) At(i uint16) Bucket {
	if t.dense != nil {
		return t.dense[i]
	}
	if b := t.sparse[i]; b != nil {
		return *b
	}
	return Bucket{}
}

// Update takes the item before out of bucket i, puts the item after in, and counts
// keys more, or fewer if negative; index is the log index of the change. An item of
// hash 0 is none.
func (t *Tree) Update(i uint16, before, after uint32, keys int, index uint64) {
	b := t.bucket(i)
	b.Sum += protocol.Mix(after) - protocol.Mix(before)
	b.Keys = uint32(int(b.Keys) + keys)
	b.Changed = max(b.Changed, index)
}

// Put makes b bucket number i.
func (t *Tree) Put(i uint16, b Bucket) { *t.bucket(i) = b }

func (t *Tree) bucket(i uint16) *Bucket {
	if t.dense != nil {
		return &t.dense[i]
	}
	if b := t.sparse[i]; b != nil {
		return b
	}
	if len(t.sparse) < sparseBuckets {
		if t.sparse == nil {
			t.sparse = map[uint16]*Bucket{}
		}
		b := new(Bucket)
		t.sparse[i] = b
		return b
	}
	t.dense = new([Buckets]Bucket)
	for j, b := range t.sparse {
		t.dense[j] = *b
	}
	t.sparse = nil
	return &t.dense[i]
}

// Each calls fn for the buckets that were ever changed, in no order.
func (t *Tree) Each(fn func(i uint16, b Bucket)) {
	for i, b := range t.sparse {
		fn(i, *b)
	}
	if t.dense == nil {
		return
	}
	for i, b := range t.dense {
		if b != (Bucket{}) {
			fn(uint16(i), b)
		}
	}
}

// AddTo adds the tree's buckets to leaves.
func (t *Tree) AddTo(leaves *Leaves) {
	if t.dense == nil {
		for i, b := range t.sparse {
			leaves.add(i, b)
		}
		return
	}
	for i := range t.dense {
		leaves.add(uint16(i), &t.dense[i])
	}
}

// Leaves is the leaf buckets of a whole map: the sums over its groups, from which
// every node's hash follows. The zero value is an empty map's.
type Leaves struct {
	sums [Buckets]uint32
	keys [Buckets]uint32
}

func (l *Leaves) add(i uint16, b *Bucket) {
	l.sums[i] += b.Sum
	l.keys[i] += b.Keys
}

// Has reports whether there are keys in bucket i.
func (l *Leaves) Has(i uint16) bool { return l.keys[i] > 0 }

// Add adds other to l.
func (l *Leaves) Add(other *Leaves) {
	for i := range l.sums {
		l.sums[i] += other.sums[i]
		l.keys[i] += other.keys[i]
	}
}

// Root is the hash of the root; 0 for an empty map.
func (l *Leaves) Root() uint32 {
	hash, _ := l.node(0, Buckets)
	return hash
}

// node is the hash of the node over size buckets from first, and whether there are
// keys below it.
func (l *Leaves) node(first, size int) (hash uint32, exists bool) {
	if size == 1 {
		return l.sums[first], l.keys[first] > 0
	}
	size /= 16
	for i := range 16 {
		child, found := l.node(first+i*size, size)
		hash += protocol.Mix(child)
		exists = exists || found
	}
	return hash, exists
}

// Children returns the hashes of the children of the node at path, by digit, of those
// that have keys; with all, the others too, as 0. path must be one that ParsePath
// accepts and not that of a leaf.
func (l *Leaves) Children(path string, all bool) map[string]uint32 {
	first, size := span(path)
	size /= 16
	children := map[string]uint32{}
	for i := range 16 {
		if hash, exists := l.node(first+i*size, size); exists || all {
			children[digits[i:i+1]] = hash
		}
	}
	return children
}

const digits = "0123456789abcdef"

// ErrPath is wrapped for text that is not a path of a tree.
var ErrPath = fmt.Errorf("path is not up to %d lower-case hex digits", Digits)

// ParsePath checks a path and returns, for that of a leaf, its bucket.
func ParsePath(path string) (bucket uint16, leaf bool, err error) {
	if len(path) > Digits {
		return 0, false, ErrPath
	}
	for i := range len(path) {
		if value(path[i]) < 0 {
			return 0, false, ErrPath
		}
	}
	first, size := span(path)
	return uint16(first), size == 1, nil
}

// Path is the path of a bucket.
func Path(bucket uint16) string {
	return string([]byte{digits[bucket>>8&15], digits[bucket>>4&15], digits[bucket&15]})
}

// span is the range of buckets below path.
func span(path string) (first, size int) {
	size = Buckets
	for i := range len(path) {
		size /= 16
		first += value(path[i]) * size
	}
	return first, size
}

func value(digit byte) int {
	switch {
	case digit >= '0' && digit <= '9':
		return int(digit - '0')
	case digit >= 'a' && digit <= 'f':
		return int(digit-'a') + 10
	default:
		return -1
	}
}
