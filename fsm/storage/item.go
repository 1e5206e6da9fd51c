package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// ItemHash is the share of one item in Mark.Digest: the 64-bit xxHash over the
// section, the length of the key, the key and the value. The digest is the sum of
// all shares modulo 2^64, so an item is replaced by subtracting its old share and
// adding the new one, and the order of changes does not matter.
func ItemHash(key Key, value []byte) uint64 {
	var head [1 + binary.MaxVarintLen64]byte
	head[0] = byte(key.Section)
	n := 1 + binary.PutUvarint(head[1:], uint64(len(key.Bytes)))
	var d xxhash.Digest
	d.Reset()
	// Writing to a Digest cannot fail.
	_, _ = d.Write(head[:n])
	_, _ = d.WriteString(key.Bytes)
	_, _ = d.Write(value)
	return d.Sum64()
}

// CheckItems reports items that no Store takes, as ErrInvalid.
func CheckItems(items []Item) error {
	for i := range items {
		k, size := items[i].Key, len(items[i].Value)
		if k.Section == 0 || len(k.Bytes) > MaxKeyBytes || size > MaxValueBytes {
			return fmt.Errorf("%w: %s item with a key of %d and a value of %d bytes", ErrInvalid, k.Section, len(k.Bytes), size)
		}
	}
	return nil
}

// CheckBatches reports batches that no Store takes in one Write, as ErrInvalid.
func CheckBatches(batches []Batch) error {
	for i := range batches {
		for j := range i {
			if batches[i].Group == batches[j].Group {
				return fmt.Errorf("%w: two batches of group %d", ErrInvalid, batches[i].Group)
			}
		}
		if err := CheckItems(batches[i].Items); err != nil {
			return err
		}
	}
	return nil
}
