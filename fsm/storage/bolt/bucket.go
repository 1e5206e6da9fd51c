package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"runtime/debug"

	"go.etcd.io/bbolt"

	"github.com/quorate/quorate/fsm/storage"
)

// formatVersion is what this build writes, and the newest it reads.
//
//	1: buckets store, meta, groups, j/<number> and g/<group>/<generation> as below
const formatVersion = 1

// The buckets beside those of the generations.
var (
	// storeBucket holds the format version and the number of the last commit that
	// changed what a Reader sees; its sequence numbers the generations.
	storeBucket = []byte("store")
	// metaBucket holds the node-level documents by name.
	metaBucket = []byte("meta")
	// groupsBucket holds the current generation of each group and its mark.
	groupsBucket = []byte("groups")
)

// The keys in storeBucket.
var (
	formatKey = []byte("format")
	commitKey = []byte("commit")
)

// generationPrefix begins the names of all generation buckets, and crcSize the
// values in all buckets.
const (
	generationPrefix = "g/"
	crcSize          = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkFormat reports whether the file is new, and refuses what this build cannot
// read.
func checkFormat(tx *bbolt.Tx) (fresh bool, err error) {
	if name, _ := tx.Cursor().First(); name == nil {
		return true, nil
	}
	version, err := openBucket(tx, storeBucket).get(formatKey)
	switch {
	case err != nil:
		return false, err
	case version == nil:
		return false, fmt.Errorf("another program's data: %w", storage.ErrFormat)
	case len(version) != 4:
		return false, fmt.Errorf("format version: %w", storage.ErrCorrupt)
	}
	if v := binary.BigEndian.Uint32(version); v > formatVersion {
		return false, fmt.Errorf("format version %d: %w", v, storage.ErrFormat)
	}
	return false, nil
}

// initialize makes a new file a store.
func initialize(tx *bbolt.Tx) error {
	for _, name := range [][]byte{metaBucket, groupsBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	if _, err := tx.CreateBucket(storeBucket); err != nil {
		return err
	}
	if err := putSequence(tx, 0); err != nil {
		return err
	}
	return openBucket(tx, storeBucket).put(formatKey, binary.BigEndian.AppendUint32(nil, formatVersion))
}

// bucket is a bbolt bucket whose values carry checksums. The zero bucket is empty.
type bucket struct {
	b *bbolt.Bucket
	// seed is the checksum of the name, so that a value is not taken for one of
	// another bucket.
	seed uint32
}

func openBucket(tx *bbolt.Tx, name []byte) bucket {
	return bucket{b: tx.Bucket(name), seed: crc32.Checksum(name, castagnoli)}
}

// get returns the value of key, nil if there is none. It aliases the file.
func (b bucket) get(key []byte) ([]byte, error) {
	if b.b == nil {
		return nil, nil
	}
	c := b.b.Cursor()
	found, stored := c.Seek(key)
	if bytes.Equal(found, key) {
		return b.open(key, stored)
	}
	return nil, b.checkGap(c, key, found, stored)
}

// checkGap checks the items on both sides of the place where a key is missing. If the key
// is there but damaged, it is one of them, because the order of the others holds. If it
// lies elsewhere, because a branch led here that is damaged, one of them is on the wrong side.
func (b bucket) checkGap(c *bbolt.Cursor, key, next, stored []byte) error {
	var before, value []byte
	if next == nil {
		before, value = c.Last()
	} else {
		if _, err := b.open(next, stored); err != nil {
			return err
		}
		before, value = c.Prev()
	}
	if before != nil {
		if _, err := b.open(before, value); err != nil {
			return err
		}
	}
	if next != nil && bytes.Compare(next, key) < 0 || before != nil && bytes.Compare(before, key) >= 0 {
		return fmt.Errorf("neighbours of key %x are out of order: %w", key, storage.ErrCorrupt)
	}
	return nil
}

func (b bucket) put(key, value []byte) error {
	return b.b.Put(key, b.seal(make([]byte, 0, crcSize+len(value)), key, value))
}

// open checks a stored value and returns it without its checksum.
func (b bucket) open(key, stored []byte) ([]byte, error) {
	return b.openAfter(b.keyStart(key), key, stored)
}

// keyStart is the checksum of what comes before a key. It is the same for all keys of a
// length.
func (b bucket) keyStart(key []byte) uint32 { return crc32.Update(b.seed, castagnoli, lengthOf(key)) }

// openAfter is open with the keyStart of key.
func (b bucket) openAfter(start uint32, key, stored []byte) ([]byte, error) {
	if len(stored) < crcSize || binary.LittleEndian.Uint32(stored) != crc32.Update(crc32.Update(start, castagnoli, key), castagnoli, stored[crcSize:]) {
		return nil, fmt.Errorf("checksum of key %x: %w", key, storage.ErrCorrupt)
	}
	return stored[crcSize:], nil
}

// seal appends value with its checksum in front to dst.
func (b bucket) seal(dst, key, value []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, b.checksum(key, value))
	return append(dst, value...)
}

func (b bucket) checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Update(b.keyStart(key), castagnoli, key), castagnoli, value)
}

// lengths holds the encoded lengths of common keys, so that a checksum needs no memory.
var lengths = func() (encoded []byte) {
	for n := range uint32(512) {
		encoded = binary.LittleEndian.AppendUint32(encoded, n)
	}
	return encoded
}()

// lengthOf is the length of key as four bytes. They must not be changed.
func lengthOf(key []byte) []byte {
	if at := 4 * len(key); at < len(lengths) {
		return lengths[at : at+4]
	}
	return binary.LittleEndian.AppendUint32(nil, uint32(len(key)))
}

// putItems stores items; a nil value deletes.
func (b bucket) putItems(items []storage.Item) error {
	size := 0
	for _, it := range items {
		size += crcSize + len(it.Value)
	}
	// bbolt copies keys and keeps values until the transaction ends.
	values := make([]byte, 0, size)
	var key []byte
	for _, it := range items {
		key = appendKey(key[:0], it.Key)
		if it.Value == nil {
			if err := b.b.Delete(key); err != nil {
				return err
			}
			continue
		}
		start := len(values)
		values = b.seal(values, key, it.Value)
		if err := b.b.Put(key, values[start:]); err != nil {
			return err
		}
	}
	return nil
}

// appendKey appends the key of an item within its generation: section, then bytes.
func appendKey(dst []byte, k storage.Key) []byte {
	dst = append(dst, byte(k.Section))
	return append(dst, k.Bytes...)
}

// guard, deferred, turns the panic or memory fault that damaged pages cause into
// ErrCorrupt. A panic while *foreign is set is not bbolt's and goes on.
func guard(err *error, foreign *bool) {
	p := recover()
	if p == nil {
		return
	}
	if foreign != nil && *foreign {
		panic(p)
	}
	*err = fmt.Errorf("%w: %v", storage.ErrCorrupt, p)
}

// faultsPanic makes faults in the mapped file panic in this goroutine instead of
// ending the process; the result undoes it.
func faultsPanic() (undo func()) {
	before := debug.SetPanicOnFault(true)
	return func() { debug.SetPanicOnFault(before) }
}
