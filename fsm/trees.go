package fsm

import (
	"encoding/binary"
	"fmt"
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

// trees are the hash trees of a group, of those maps that have or had keys.
type trees map[treeID]*merkle.Tree

// of returns the tree of a map, which is made if there is none. mapName is not kept.
func (t trees) of(mapName string, kind merkle.Kind) *merkle.Tree {
	id := treeID{mapName, kind}
	tree := t[id]
	if tree == nil {
		tree = new(merkle.Tree)
		t[treeID{strings.Clone(mapName), kind}] = tree
	}
	return tree
}

// listed is the value of items that say all in their key.
var listed = []byte{1}

// leafPrefix is the common prefix of the leaf items of a bucket.
func leafPrefix(mapName string, kind merkle.Kind, bucket uint16) []byte {
	b := codec.AppendText(make([]byte, 0, len(mapName)+64), mapName)
	return binary.BigEndian.AppendUint16(append(b, byte(kind)), bucket)
}

// leafKey is the item by which a bucket lists a key.
func leafKey(mapName string, kind merkle.Kind, bucket uint16, key string) storage.Key {
	return storage.Key{Section: storage.SectionLeaves, Bytes: string(append(leafPrefix(mapName, kind, bucket), key...))}
}

// loadLeaf is the row of leaves in sections.
func loadLeaf(_ *resident, key string, value []byte) error {
	_, rest, err := splitRecordKey(key)
	if err == nil && (len(rest) < 3 || string(value) != string(listed)) {
		err = fmt.Errorf("leaf %q: %w", key, storage.ErrCorrupt)
	}
	return err
}
