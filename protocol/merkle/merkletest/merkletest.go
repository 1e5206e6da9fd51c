// Package merkletest makes keys and timestamps of chosen hashes, as a hostile client does:
// the hashes of the protocol are no cryptographic ones. It is for tests.
package merkletest

import (
	"strconv"

	"github.com/quorate/quorate/protocol"
)

const (
	prime = 0x01000193
	// Firsts and seconds of the two characters that lead to a hash lie between these: no
	// control characters, no surrogates.
	lowest, highest = 0x00a1, 0xd7ff
)

// Keys returns n different keys of one hash: they share partition and leaf, and with one
// timestamp their items. A key takes about 50 µs.
func Keys(n int) []string {
	keys := make([]string, 0, n)
	target := protocol.Hash("all")
	for i := 0; len(keys) < n; i++ {
		if key, ok := ending("key"+strconv.Itoa(i)+"-", target); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// Stamp is a timestamp of the given time with which key has the given item in the tree of
// records.
func Stamp(key string, millis int64, item uint32) protocol.Timestamp {
	for i := 0; ; i++ {
		ts := protocol.Timestamp{Millis: millis, NodeID: "n" + strconv.Itoa(i)}
		text := string(ts.AppendText([]byte(key + ":")))
		if whole, ok := ending(text, item); ok {
			ts.NodeID += whole[len(text):]
			return ts
		}
	}
}

// Cancelling is the timestamp of the given time with which a key takes back in the sum of its
// leaf what another change, of an item from before to after, does to it; item is the key's
// present one.
func Cancelling(key string, millis int64, item, before, after uint32) protocol.Timestamp {
	return Stamp(key, millis, unmix(protocol.Mix(item)+protocol.Mix(before)-protocol.Mix(after)))
}

// ending returns text with two characters that give it the hash target, if there are any.
func ending(text string, target uint32) (whole string, ok bool) {
	h := protocol.Hash(text)
	last := target * inverse(prime) // what the hash is before the last multiplication
	for first := uint32(lowest); first <= highest; first++ {
		if second := (h^first)*prime ^ last; second >= lowest && second <= highest {
			return text + string([]rune{rune(first), rune(second)}), true
		}
	}
	return "", false
}

// unmix undoes protocol.Mix.
func unmix(h uint32) uint32 {
	h ^= h >> 16
	h *= inverse(0xc2b2ae35)
	h ^= h>>13 ^ h>>26
	h *= inverse(0x85ebca6b)
	return h ^ h>>16
}

// inverse is the factor that undoes an odd one, by Newton's method.
func inverse(odd uint32) uint32 {
	x := odd
	for range 5 {
		x *= 2 - odd*x
	}
	return x
}
