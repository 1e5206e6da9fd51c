package fsm

import (
	"strings"

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
