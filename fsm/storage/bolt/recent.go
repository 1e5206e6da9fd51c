package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/btree"
	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/fsm/storage"
)

// tree is the recent items of one group in key order. A nil value hides what lies
// below. Once in a published view it is never changed.
type tree = btree.BTreeG[storage.Item]

func newTree() *tree {
	return btree.NewBTreeGOptions(func(a, b storage.Item) bool { return before(a.Key, b.Key) }, btree.Options{NoLocks: true})
}

// before is the order of the items of a group.
func before(a, b storage.Key) bool {
	if a.Section != b.Section {
		return a.Section < b.Section
	}
	return a.Bytes < b.Bytes
}

// layer is the content of one journal bucket: what was written to it, the latest
// of each item.
type layer struct {
	// number is that of the bucket; later layers have greater ones.
	number uint64
	groups map[uint32]*tree
	// chunks and bytes are the size of the bucket.
	chunks uint64
	bytes  int
}

func newLayer(number uint64) *layer { return &layer{number: number, groups: map[uint32]*tree{}} }

// get returns an item of the layer. The nil layer is empty.
func (l *layer) get(group uint32, key storage.Key) (value []byte, found bool) {
	if l == nil || l.groups[group] == nil {
		return nil, false
	}
	item, found := l.groups[group].Get(storage.Item{Key: key})
	return item.Value, found
}

// without is the layer without a group.
func (l *layer) without(group uint32) *layer {
	if l == nil || l.groups[group] == nil {
		return l
	}
	next := *l
	next.groups = maps.Clone(l.groups)
	delete(next.groups, group)
	return &next
}

// view is what lies over the buckets of the generations at one commit: active over
// frozen over them. It is immutable.
type view struct {
	// sequence numbers the commits; the file holds it too.
	sequence uint64
	// active takes writes. frozen, nil if there is none, is being merged into the
	// generations and is through with everything below next.
	active, frozen *layer
	next           position
}

// position is an item of a group in the order of the merge.
type position struct {
	group uint32
	key   storage.Key
}

// views are those that a transaction may belong to: the latest one, whose commit may
// be on its way, and the one before it.
type views struct{ latest, before *view }

func (v *views) of(sequence uint64) *view {
	switch {
	case v.latest.sequence == sequence:
		return v.latest
	case v.before != nil && v.before.sequence == sequence:
		return v.before
	default:
		return nil
	}
}

// sequence is the number of the commit that tx sees. It has a checksum, because a
// wrong one would belong to no view, for ever.
func sequence(tx *bbolt.Tx) (uint64, error) {
	stored, err := openBucket(tx, storeBucket).get(commitKey)
	if err != nil {
		return 0, err
	}
	if len(stored) != 8 {
		return 0, fmt.Errorf("number of the last commit: %w", storage.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(stored), nil
}

func putSequence(tx *bbolt.Tx, n uint64) error {
	return openBucket(tx, storeBucket).put(commitKey, binary.BigEndian.AppendUint64(nil, n))
}

// publish makes next the view that the commit of tx leads to.
func (s *Store) publish(tx *bbolt.Tx, next *view) error {
	latest := s.views.Load().latest
	next.sequence = latest.sequence + 1
	if err := putSequence(tx, next.sequence); err != nil {
		return err
	}
	s.views.Store(&views{latest: next, before: latest})
	return nil
}

// forget publishes a view without the recent items of a group.
func (s *Store) forget(tx *bbolt.Tx, group uint32) error {
	next := *s.views.Load().latest
	next.active, next.frozen = next.active.without(group), next.frozen.without(group)
	return s.publish(tx, &next)
}

// journalPrefix begins the names of the buckets of layers.
const journalPrefix = "j/"

func journalName(number uint64) []byte { return fmt.Appendf(nil, "%s%016x", journalPrefix, number) }

// load reads the layers of the file. There are two if the merge of the older one had
// not ended; merging an item again changes nothing.
func (s *Store) load(tx *bbolt.Tx) error {
	base, err := journalBase(tx)
	if err != nil {
		return err
	}
	var layers []*layer
	c := tx.Cursor()
	for name, _ := c.Seek(journalName(base)); strings.HasPrefix(string(name), journalPrefix); name, _ = c.Next() {
		l, err := loadLayer(tx, name)
		if err != nil {
			return err
		}
		layers = append(layers, l)
	}
	n, err := sequence(tx)
	if err != nil {
		return err
	}
	v := &view{sequence: n}
	switch len(layers) {
	case 0:
		v.active = newLayer(base)
	case 1:
		v.active = layers[0]
	case 2:
		v.frozen, v.active = layers[0], layers[1]
	default:
		return fmt.Errorf("%d journals: %w", len(layers), storage.ErrCorrupt)
	}
	s.views.Store(&views{latest: v})
	return nil
}

func loadLayer(tx *bbolt.Tx, name []byte) (*layer, error) {
	l := newLayer(0)
	if _, err := fmt.Sscanf(string(name), journalPrefix+"%x", &l.number); err != nil {
		return nil, fmt.Errorf("journal %q: %w", name, storage.ErrCorrupt)
	}
	b := openBucket(tx, name)
	err := b.b.ForEach(func(key, stored []byte) error {
		encoded, err := b.open(key, stored)
		if err != nil {
			return err
		}
		l.chunks++
		l.bytes += len(encoded)
		return l.replay(tx, slices.Clone(encoded))
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", errJournal, name, err)
	}
	return l, nil
}

// replay takes over the items of a chunk, unless its group's state was replaced or
// dropped since, or is damaged anyway.
func (l *layer) replay(tx *bbolt.Tx, encoded []byte) error {
	c, err := decodeChunk(encoded)
	if err != nil {
		return err
	}
	generation, _, err := currentGeneration(tx, c.group)
	if errors.Is(err, storage.ErrCorrupt) {
		return nil
	}
	if err != nil || generation != c.generation {
		return err
	}
	t := l.groups[c.group]
	if t == nil {
		t = newTree()
		l.groups[c.group] = t
	}
	for _, it := range c.items {
		t.Set(it)
	}
	return nil
}
