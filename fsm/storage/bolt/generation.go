package bolt

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/fsm/storage"
)

func groupKey(group uint32) []byte { return binary.BigEndian.AppendUint32(nil, group) }

// generationName is the bucket of a generation of a group.
func generationName(group uint32, generation uint64) []byte {
	return fmt.Appendf(nil, "%s%08x/%016x", generationPrefix, group, generation)
}

// currentGeneration returns the number of a group's current generation, and the
// mark of the state that it and the layers over it make up; zero if the group has
// none.
func currentGeneration(tx *bbolt.Tx, group uint32) (uint64, storage.Mark, error) {
	stored, err := openBucket(tx, groupsBucket).get(groupKey(group))
	if stored == nil || err != nil {
		return 0, storage.Mark{}, err
	}
	if len(stored) < 8 {
		return 0, storage.Mark{}, fmt.Errorf("generation of group %d: %w", group, storage.ErrCorrupt)
	}
	generation := binary.BigEndian.Uint64(stored)
	if broken, err := marked(tx, brokenPrefix, generationName(group, generation)); broken || err != nil {
		return 0, storage.Mark{}, cmp.Or(err, fmt.Errorf("journal over group %d was damaged: %w", group, storage.ErrCorrupt))
	}
	mark, err := storage.DecodeMark(stored[8:])
	return generation, mark, err
}

// setCurrent makes a generation the current one, with the mark of the group.
func setCurrent(tx *bbolt.Tx, group uint32, generation uint64, mark storage.Mark) error {
	return openBucket(tx, groupsBucket).put(groupKey(group), storage.AppendMark(binary.BigEndian.AppendUint64(nil, generation), mark))
}

// current returns the bucket of a group's current generation; the zero bucket if
// the group has none.
func current(tx *bbolt.Tx, group uint32) (bucket, error) {
	generation, _, err := currentGeneration(tx, group)
	if generation == 0 || err != nil {
		return bucket{}, err
	}
	b := openBucket(tx, generationName(group, generation))
	if b.b == nil {
		return bucket{}, fmt.Errorf("generation of group %d is missing: %w", group, storage.ErrCorrupt)
	}
	return b, nil
}

// generationOrNew moves a group to mark and returns its current generation, made
// now for a group without one.
func generationOrNew(tx *bbolt.Tx, group uint32, mark storage.Mark) (uint64, error) {
	generation, _, err := currentGeneration(tx, group)
	if err != nil {
		return 0, err
	}
	if generation == 0 {
		if generation, err = newGeneration(tx, group); err != nil {
			return 0, err
		}
	}
	return generation, setCurrent(tx, group, generation, mark)
}

// newGeneration makes the bucket of a generation. No number is ever used twice: the
// journals may still hold items of dropped generations.
func newGeneration(tx *bbolt.Tx, group uint32) (uint64, error) {
	generation, err := tx.Bucket(storeBucket).NextSequence()
	if err != nil {
		return 0, err
	}
	_, err = tx.CreateBucket(generationName(group, generation))
	return generation, err
}

// quarantinePrefix begins the keys in storeBucket that name generations which are
// damaged: they are never emptied, because what they refer to may be in use elsewhere.
const quarantinePrefix = "quarantine/"

// brokenPrefix begins the keys in storeBucket that name generations which lack what a
// damaged journal held.
const brokenPrefix = "broken/"

// Quarantine keeps what the store has of a group from being removed when it is replaced:
// it is damaged. Its space is not used again.
func (s *Store) Quarantine(group uint32) error {
	return s.update("quarantine", func(tx *bbolt.Tx) error {
		b := openBucket(tx, storeBucket)
		prefix := fmt.Appendf(nil, "%s%08x/", generationPrefix, group)
		c := tx.Cursor()
		var names [][]byte
		for name, _ := c.Seek(prefix); bytes.HasPrefix(name, prefix); name, _ = c.Next() {
			names = append(names, append([]byte(quarantinePrefix), name...))
		}
		for _, name := range names {
			if err := b.put(name, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// Quarantined is how many states of each group were set aside by Quarantine and take
// space in the file; groups without one are left out. It blocks for one look into the
// file. Errors: those of reading it.
func (s *Store) Quarantined() (map[uint32]int, error) {
	count := map[uint32]int{}
	err := s.view(func(tx *bbolt.Tx) error {
		prefix := []byte(quarantinePrefix + generationPrefix)
		c := tx.Bucket(storeBucket).Cursor()
		for key, _ := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, _ = c.Next() {
			var group uint32
			if _, err := fmt.Sscanf(string(key[len(prefix):]), "%08x/", &group); err != nil {
				return fmt.Errorf("quarantine of %q: %w", key, storage.ErrCorrupt)
			}
			count[group]++
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list what is set aside: %w", err)
	}
	return count, nil
}

// marked reports whether a generation is listed in storeBucket under prefix.
func marked(tx *bbolt.Tx, prefix string, name []byte) (bool, error) {
	value, err := openBucket(tx, storeBucket).get(append([]byte(prefix), name...))
	return value != nil, err
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
	err := s.update("replace", func(tx *bbolt.Tx) (err error) {
		if r.generation, err = newGeneration(tx, group); err != nil {
			return err
		}
		r.name = generationName(group, r.generation)
		// Before the bucket can be seen, so that the sweeper does not take it.
		s.setLoading(r.name, true)
		return nil
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
		if err := setCurrent(tx, r.group, r.generation, mark); err != nil {
			return err
		}
		return r.store.forget(tx, r.group)
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
