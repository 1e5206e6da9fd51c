package bolt

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/fsm/storage"
)

func groupKey(group uint32) []byte { return binary.BigEndian.AppendUint32(nil, group) }

// generationName is the bucket of a generation of a group.
func generationName(group uint32, generation uint64) []byte {
	return fmt.Appendf(nil, "%s%08x/%016x", generationPrefix, group, generation)
}

// current returns the bucket of a group's current generation; the zero bucket if
// the group has none.
func current(tx *bbolt.Tx, group uint32) (bucket, error) {
	generation, err := openBucket(tx, groupsBucket).get(groupKey(group))
	if generation == nil || err != nil {
		return bucket{}, err
	}
	name, err := currentName(groupKey(group), generation)
	if err != nil {
		return bucket{}, err
	}
	b := openBucket(tx, name)
	if b.b == nil {
		return bucket{}, fmt.Errorf("generation of group %d is missing: %w", group, storage.ErrCorrupt)
	}
	return b, nil
}

// currentName is the bucket that an item of the groups bucket points to.
func currentName(key, generation []byte) ([]byte, error) {
	if len(key) != 4 || len(generation) != 8 {
		return nil, fmt.Errorf("generation of group %x: %w", key, storage.ErrCorrupt)
	}
	return generationName(binary.BigEndian.Uint32(key), binary.BigEndian.Uint64(generation)), nil
}

// currentOrNew is current, with a first generation made for a group without one.
func currentOrNew(tx *bbolt.Tx, group uint32) (bucket, error) {
	b, err := current(tx, group)
	if b.b != nil || err != nil {
		return b, err
	}
	generation := nextGeneration(tx, group)
	if err := setCurrent(tx, group, generation); err != nil {
		return bucket{}, err
	}
	name := generationName(group, generation)
	if _, err := tx.CreateBucket(name); err != nil {
		return bucket{}, err
	}
	return openBucket(tx, name), nil
}

func setCurrent(tx *bbolt.Tx, group uint32, generation uint64) error {
	return openBucket(tx, groupsBucket).put(groupKey(group), binary.BigEndian.AppendUint64(nil, generation))
}

// nextGeneration is above every generation of the group that is in the file.
func nextGeneration(tx *bbolt.Tx, group uint32) uint64 {
	prefix := fmt.Sprintf("%s%08x/", generationPrefix, group)
	c := tx.Cursor()
	newest := uint64(0)
	for name, _ := c.Seek([]byte(prefix)); strings.HasPrefix(string(name), prefix); name, _ = c.Next() {
		// Whatever else lies there is not a generation.
		if generation, err := strconv.ParseUint(string(name[len(prefix):]), 16, 64); err == nil {
			newest = max(newest, generation)
		}
	}
	return newest + 1
}

// replacer fills a new generation.
type replacer struct {
	store      *Store
	group      uint32
	generation uint64
	name       []byte
}

// Replace implements storage.Store.
func (s *Store) Replace(group uint32) (storage.Replacer, error) {
	r := &replacer{store: s, group: group}
	err := s.update("replace", func(tx *bbolt.Tx) error {
		r.generation = nextGeneration(tx, group)
		r.name = generationName(group, r.generation)
		// Before the bucket can be seen, so that the sweeper does not take it.
		s.setLoading(r.name, true)
		_, err := tx.CreateBucket(r.name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Put implements storage.Replacer.
func (r *replacer) Put(items []storage.Item) error {
	if err := storage.CheckItems(items); err != nil {
		return fmt.Errorf("replace: %w", err)
	}
	return r.store.update("replace", func(tx *bbolt.Tx) error {
		return openBucket(tx, r.name).putItems(items)
	})
}

// Commit implements storage.Replacer.
func (r *replacer) Commit(mark storage.Mark) error {
	err := r.store.update("replace", func(tx *bbolt.Tx) error {
		if err := openBucket(tx, r.name).putMark(mark); err != nil {
			return err
		}
		return setCurrent(tx, r.group, r.generation)
	})
	r.end()
	return err
}

// Abort implements storage.Replacer.
func (r *replacer) Abort() error {
	r.end()
	return nil
}

// end leaves the generation that is not current, the old one or this, to the
// sweeper.
func (r *replacer) end() {
	r.store.setLoading(r.name, false)
	r.store.wakeSweeper()
}

func (s *Store) setLoading(name []byte, loading bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if loading {
		s.loading[string(name)] = true
	} else {
		delete(s.loading, string(name))
	}
}
