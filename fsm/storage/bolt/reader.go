package bolt

import (
	"bytes"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/fsm/storage"
)

// reader implements storage.Reader over a read transaction.
type reader struct {
	tx *bbolt.Tx
	// bucket is that of group, when found is set; a Reader mostly serves one group.
	bucket bucket
	group  uint32
	found  bool
	// key is scratch space.
	key []byte
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
	b, err := r.current(group)
	if err == nil {
		mark, err = b.mark()
	}
	if err != nil {
		return storage.Mark{}, fmt.Errorf("read mark of group %d: %w", group, err)
	}
	return mark, nil
}

// Get implements storage.Reader.
func (r *reader) Get(group uint32, key storage.Key) (value []byte, err error) {
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

// Scan implements storage.Reader.
func (r *reader) Scan(group uint32, section storage.Section, prefix, from string, fn func(string, []byte) bool) (err error) {
	foreign := false
	defer faultsPanic()()
	defer guard(&err, &foreign)
	b, err := r.current(group)
	if err != nil {
		return fmt.Errorf("scan group %d: %w", group, err)
	}
	if b.b == nil {
		return nil
	}
	within := appendKey(nil, storage.Key{Section: section, Bytes: prefix})
	c := b.b.Cursor()
	first := appendKey(nil, storage.Key{Section: section, Bytes: max(prefix, from)})
	for key, stored := c.Seek(first); bytes.HasPrefix(key, within); key, stored = c.Next() {
		value, err := b.open(key, stored)
		if err != nil {
			return fmt.Errorf("scan group %d: %w", group, err)
		}
		foreign = true
		more := fn(string(key[1:]), value)
		foreign = false
		if !more {
			return nil
		}
	}
	return nil
}

// Close implements storage.Reader.
func (r *reader) Close() error {
	if err := r.tx.Rollback(); err != nil {
		return fmt.Errorf("close view: %w", err)
	}
	return nil
}
