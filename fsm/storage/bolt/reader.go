package bolt

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/fsm/storage"
)

// reader implements storage.Reader over a read transaction and the layers that
// belong to it.
type reader struct {
	tx   *bbolt.Tx
	view *view
	// bucket is that of group, when found is set; a Reader mostly serves one group.
	bucket bucket
	group  uint32
	found  bool
	// key is scratch space.
	key []byte
}

// NewReader implements storage.Store. A view that belongs to the transaction is
// missing only if two commits ended while it was begun; then it is begun again.
func (s *Store) NewReader() (storage.Reader, error) {
	for {
		r, err := s.tryReader()
		if err != nil {
			return nil, fmt.Errorf("open view: %w", classify(err))
		}
		if r.view != nil {
			return r, nil
		}
		if err := r.Close(); err != nil {
			return nil, err
		}
	}
}

func (s *Store) tryReader() (r *reader, err error) {
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	defer faultsPanic()()
	defer guard(&err, nil)
	n, err := sequence(tx)
	if err != nil {
		return nil, err
	}
	return &reader{tx: tx, view: s.views.Load().of(n)}, nil
}

func (r *reader) current(group uint32) (bucket, error) {
	if r.found && r.group == group {
		return r.bucket, nil
	}
	b, err := current(r.tx, group)
	if err == nil {
		r.bucket, r.group, r.found = b, group, true
	}
	return b, err
}

// Mark implements storage.Reader.
func (r *reader) Mark(group uint32) (mark storage.Mark, err error) {
	defer faultsPanic()()
	defer guard(&err, nil)
	_, mark, err = currentGeneration(r.tx, group)
	if err != nil {
		return storage.Mark{}, fmt.Errorf("read mark of group %d: %w", group, err)
	}
	return mark, nil
}

// Get implements storage.Reader.
func (r *reader) Get(group uint32, key storage.Key) (value []byte, err error) {
	if value, found := r.view.active.get(group, key); found {
		return value, nil
	}
	if value, found := r.view.frozen.get(group, key); found {
		return value, nil
	}
	defer faultsPanic()()
	defer guard(&err, nil)
	b, err := r.current(group)
	if err == nil {
		r.key = appendKey(r.key[:0], key)
		value, err = b.get(r.key)
	}
	if err != nil {
		return nil, fmt.Errorf("read item of group %d: %w", group, err)
	}
	return value, nil
}

// Close implements storage.Reader.
func (r *reader) Close() error {
	if err := r.tx.Rollback(); err != nil {
		return fmt.Errorf("close view: %w", err)
	}
	return nil
}
