package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/fsm/storage"
)

// errJournal marks damage to a journal.
var errJournal = errors.New("journal")

// baseKey in storeBucket is the number below which journals are damaged and not read.
var baseKey = []byte("journal-base")

// journalBase is the number of the first journal that counts.
func journalBase(tx *bbolt.Tx) (uint64, error) {
	stored, err := openBucket(tx, storeBucket).get(baseKey)
	switch {
	case err != nil:
		return 0, err
	case stored == nil:
		return 1, nil
	case len(stored) != 8:
		return 0, fmt.Errorf("number of the first journal: %w", storage.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(stored), nil
}

// setJournalsAside opens a store whose journals are damaged, because of cause: which
// items they held is not known, so every group is damaged until it is replaced. The
// journals stay where they are and their space is not used again.
func (s *Store) setJournalsAside(cause error) error {
	s.logger.Error("journal is damaged, all groups are out of service until they are replaced", "err", cause)
	err := s.update("set damaged journals aside", func(tx *bbolt.Tx) error {
		b := openBucket(tx, storeBucket)
		next := uint64(1)
		c := tx.Cursor()
		for name, _ := c.Seek([]byte(journalPrefix)); strings.HasPrefix(string(name), journalPrefix); name, _ = c.Next() {
			var number uint64
			if _, err := fmt.Sscanf(string(name), journalPrefix+"%x", &number); err != nil {
				return fmt.Errorf("journal %q: %w", name, storage.ErrCorrupt)
			}
			next = max(next, number+1)
		}
		broken, err := currentNames(tx)
		if err != nil {
			return err
		}
		for _, name := range broken {
			if err := b.put(append([]byte(brokenPrefix), name...), nil); err != nil {
				return err
			}
		}
		return b.put(baseKey, binary.BigEndian.AppendUint64(nil, next))
	})
	if err != nil {
		return err
	}
	return s.view(s.load)
}

// currentNames lists the current generations of all groups that can be read.
func currentNames(tx *bbolt.Tx) (names [][]byte, err error) {
	err = tx.Bucket(groupsBucket).ForEach(func(key, _ []byte) error {
		if len(key) != 4 {
			return fmt.Errorf("group %x: %w", key, storage.ErrCorrupt)
		}
		group := binary.BigEndian.Uint32(key)
		generation, _, err := currentGeneration(tx, group)
		if err == nil {
			names = append(names, generationName(group, generation))
		}
		if errors.Is(err, storage.ErrCorrupt) {
			return nil // it is damaged already
		}
		return err
	})
	return names, err
}
