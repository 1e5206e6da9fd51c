package protocol

// PartitionCount is the number of partitions of the key space. It is part of
// the wire contract: clients compute partitions with this constant.
const PartitionCount = 271

const (
	fnvOffset32 = 0x811c9dc5
	fnvPrime32  = 0x01000193
)

// Hash is the 32-bit FNV-1a hash over the UTF-16 code units of s: every unit is
// mixed in whole, and a character above U+FFFF counts as its two surrogates.
// Bytes that are not valid UTF-8 hash as U+FFFD. Clients compute the same
// function, so its result must never change.
func Hash(s string) uint32 { return hashFrom(fnvOffset32, s) }

// hashFrom goes on from h with s.
func hashFrom(h uint32, s string) uint32 {
	for _, r := range s {
		if r >= 0x10000 {
			r -= 0x10000
			h = (h ^ (0xd800 + uint32(r>>10))) * fnvPrime32
			h = (h ^ (0xdc00 + uint32(r&0x3ff))) * fnvPrime32
			continue
		}
		h = (h ^ uint32(r)) * fnvPrime32
	}
	return h
}

// Partition is the partition that owns key, from 0 to PartitionCount-1. For maps
// the key is the record key alone, never the map name; for locks, counters and
// topics it is their name.
func Partition(key string) uint32 {
	return Hash(key) % PartitionCount
}

// Mix spreads the bits of h before hashes are added up: the 32-bit finalizer of
// MurmurHash3. Clients compute the same function.
func Mix(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// Combine is the hash of a set of hashes, in any order: the sum of their Mix. It
// is 0 for none, and Mix(h), not h, for one.
func Combine(hashes ...uint32) (sum uint32) {
	for _, h := range hashes {
		sum += Mix(h)
	}
	return sum
}

// HashBytes is Hash of a text in bytes.
func HashBytes(text []byte) uint32 {
	h := uint32(fnvOffset32)
	for i, c := range text {
		if c >= 0x80 {
			return hashFrom(h, string(text[i:]))
		}
		h = (h ^ uint32(c)) * fnvPrime32
	}
	return h
}
