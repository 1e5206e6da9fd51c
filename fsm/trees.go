package fsm

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol/merkle"
)

// treeID names one tree.
type treeID struct {
	mapName string
	kind    merkle.Kind
}

// tree is the hash tree of a map, and which of its buckets the sealed batches do not
// have as they are.
type tree struct {
	merkle.Tree
	id    treeID
	dirty map[uint16]struct{}
	// keys is how many there are in all buckets.
	keys int
}

// trees are the hash trees of a group, of those maps that have keys, or had some when the
// open batch began.
type trees struct {
	byID map[treeID]*tree
	// dirty are the trees with dirty buckets.
	dirty []*tree
	// stored tells that the batches from the first on have, or will have, every bucket.
	stored bool
}

func newTrees() trees { return trees{byID: map[treeID]*tree{}} }

// get returns the tree of a map, nil if there is none.
func (t *trees) get(mapName string, kind merkle.Kind) *tree { return t.byID[treeID{mapName, kind}] }

// of returns the tree of a map, which is made if there is none. mapName is not kept.
func (t *trees) of(mapName string, kind merkle.Kind) *tree {
	found := t.get(mapName, kind)
	if found == nil {
		found = &tree{id: treeID{strings.Clone(mapName), kind}, dirty: map[uint16]struct{}{}}
		t.byID[found.id] = found
	}
	return found
}

// update is merkle.Tree.Update of the tree of a map.
func (t *trees) update(mapName string, kind merkle.Kind, bucket uint16, before, after uint32, keys int, index uint64) {
	tree := t.of(mapName, kind)
	tree.Update(bucket, before, after, keys, index)
	tree.keys += keys
	if len(tree.dirty) == 0 {
		t.dirty = append(t.dirty, tree)
	}
	tree.dirty[bucket] = struct{}{}
}

const leafFormat = 1

// leavesKey is the item which says that the section has every bucket.
var leavesKey = storage.Key{Section: storage.SectionLeaves}

// seal returns the items of the dirty buckets, which are clean then. A tree without keys,
// whose tombstones are all collected, is forgotten.
func (t *trees) seal() []storage.Item {
	var items []storage.Item
	if !t.stored {
		t.stored = true
		items = append(items, storage.Item{Key: leavesKey, Value: []byte{leafFormat}})
	}
	for _, tree := range t.dirty {
		if tree.keys == 0 {
			tree.Each(func(bucket uint16, _ merkle.Bucket) { items = append(items, storage.Item{Key: tree.key(bucket)}) })
			delete(t.byID, tree.id)
			continue
		}
		for bucket := range tree.dirty {
			items = append(items, storage.Item{Key: tree.key(bucket), Value: encodeLeaf(tree.At(bucket))})
		}
		clear(tree.dirty)
	}
	clear(t.dirty)
	t.dirty = t.dirty[:0]
	return items
}

// key is where a bucket is stored.
func (t *tree) key(bucket uint16) storage.Key {
	b := append(codec.AppendText(nil, t.id.mapName), byte(t.id.kind))
	return storage.Key{Section: storage.SectionLeaves, Bytes: string(binary.BigEndian.AppendUint16(b, bucket))}
}

func encodeLeaf(b merkle.Bucket) []byte {
	e := binary.LittleEndian.AppendUint32(make([]byte, 0, 16), b.Sum)
	e = binary.AppendUvarint(e, uint64(b.Keys))
	return binary.AppendUvarint(e, b.Changed)
}

// loadLeaf takes one stored bucket.
func (t *trees) loadLeaf(key string, value []byte) error {
	mapName, rest, err := splitName(key)
	if err != nil || len(rest) != 3 {
		return fmt.Errorf("leaf %q: %w", key, storage.ErrCorrupt)
	}
	kind, bucket := merkle.Kind(rest[0]), binary.BigEndian.Uint16([]byte(rest[1:]))
	r := codec.NewReader(value)
	sum, keys, changed := r.Uint32(), r.Uvarint(), r.Uvarint()
	if keys > math.MaxUint32 {
		r.Fail("%d keys", keys)
	}
	b := merkle.Bucket{Sum: sum, Keys: uint32(keys), Changed: changed}
	if err := r.End(); err != nil || bucket >= merkle.Buckets || kind != merkle.Records && kind != merkle.Sets {
		return fmt.Errorf("leaf %q: %w", key, storage.ErrCorrupt)
	}
	tree := t.of(mapName, kind)
	tree.Put(bucket, b)
	tree.keys += int(b.Keys)
	return nil
}

// readLeaves takes the trees from the store, and reports whether it has them: otherwise
// they follow from the records and sets.
func (t *trees) readLeaves(reader storage.Reader, group uint32) (complete bool, err error) {
	head, err := reader.Get(group, leavesKey)
	if err != nil || head == nil {
		return false, err
	}
	if len(head) != 1 || head[0] != leafFormat {
		return false, fmt.Errorf("leaves in format %x: %w", head, storage.ErrFormat)
	}
	var bad error
	err = reader.Scan(group, storage.SectionLeaves, "", "\x00", func(key string, value []byte) bool {
		bad = t.loadLeaf(key, value)
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", storage.SectionLeaves, err)
	}
	t.stored = true
	return true, nil
}
