package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/fsm/storage"
)

// sweepItems bounds the items removed in one transaction, so that writes never
// wait long behind the sweeper.
const sweepItems = 1000

func (s *Store) wakeSweeper() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return
	}
	select {
	case s.sweep <- struct{}{}:
	default:
	}
}

// runSweeper removes abandoned generations whenever it is woken, until Close.
func (s *Store) runSweeper() {
	for range s.sweep {
		for more := true; more && !s.closing(); {
			var err error
			if more, err = s.sweepOnce(); err != nil {
				if !errors.Is(err, storage.ErrClosed) {
					s.logger.Error("removing an abandoned generation stopped", "err", err)
				}
				return
			}
		}
	}
}

func (s *Store) closing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// sweepOnce removes some items of one abandoned generation, and the generation
// with the last of them. It reports whether it found one.
func (s *Store) sweepOnce() (found bool, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		name, err := s.abandoned(tx)
		found = name != nil
		return err
	})
	if !found || err != nil {
		return false, err
	}
	return true, s.update("sweep", func(tx *bbolt.Tx) error {
		// Asked again, because a view can be older than the commit of a replacer
		// that is not loading any more: to it the new generation looks abandoned.
		name, err := s.abandoned(tx)
		if name == nil || err != nil {
			return err
		}
		return shrink(tx, name)
	})
}

// shrink removes the first items of a bucket, and the bucket when it is empty.
func shrink(tx *bbolt.Tx, name []byte) error {
	b := tx.Bucket(name)
	keys := firstKeys(b, sweepItems)
	for _, k := range keys {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	if len(keys) < sweepItems {
		return tx.DeleteBucket(name)
	}
	return nil
}

// abandoned finds the bucket of a generation that is neither current nor being
// filled; nil if there is none.
func (s *Store) abandoned(tx *bbolt.Tx) ([]byte, error) {
	live := map[string]bool{}
	var damaged []string
	err := tx.Bucket(groupsBucket).ForEach(func(key, _ []byte) error {
		if len(key) != 4 {
			return fmt.Errorf("group %x: %w", key, storage.ErrCorrupt)
		}
		group := binary.BigEndian.Uint32(key)
		generation, _, err := currentGeneration(tx, group)
		if errors.Is(err, storage.ErrCorrupt) {
			damaged = append(damaged, fmt.Sprintf("%s%08x/", generationPrefix, group))
			return nil
		}
		live[string(generationName(group, generation))] = true
		return err
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := tx.Cursor()
	for name, _ := c.Seek([]byte(generationPrefix)); strings.HasPrefix(string(name), generationPrefix); name, _ = c.Next() {
		if live[string(name)] || s.loading[string(name)] {
			continue
		}
		if slices.ContainsFunc(damaged, func(prefix string) bool { return strings.HasPrefix(string(name), prefix) }) {
			continue
		}
		kept, err := marked(tx, quarantinePrefix, name)
		if err != nil {
			return nil, err
		}
		if !kept {
			return append([]byte{}, name...), nil
		}
	}
	return nil, nil
}

func firstKeys(b *bbolt.Bucket, n int) [][]byte {
	keys := make([][]byte, 0, n)
	c := b.Cursor()
	for k, _ := c.First(); k != nil && len(keys) < n; k, _ = c.Next() {
		keys = append(keys, append([]byte{}, k...))
	}
	return keys
}
