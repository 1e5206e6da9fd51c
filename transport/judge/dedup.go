package judge

import (
	"crypto/sha256"
	"encoding/binary"
	"reflect"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

// dedupBytes is how much of the digest makes a dedup key. The keys are replicated
// and kept in memory; a collision would swallow a write, so 128 bits it is.
const dedupBytes = 16

// dedupKey identifies an operation whose repeat could do harm across re-sends: by
// client, operation id and content. Content takes part because clients restart
// their ids.
func dedupKey(client, id string, op *partitions.Op) string {
	h := sha256.New()
	var size [8]byte
	part := func(s string) {
		binary.BigEndian.PutUint64(size[:], uint64(len(s)))
		h.Write(size[:])
		h.Write([]byte(s))
	}
	part(client)
	part(id)
	part(op.Map)
	part(op.Key)
	part(string(op.Record.Value))
	binary.BigEndian.PutUint64(size[:], uint64(op.Record.TTLMillis))
	h.Write(size[:])
	if op.Fence.Lock != "" {
		part(op.Fence.Lock)
		binary.BigEndian.PutUint64(size[:], op.Fence.Token)
		h.Write(size[:])
		part(op.Record.Timestamp.String())
	}
	return string(h.Sum(nil)[:dedupBytes])
}

// repetition says how an operation relates to others of its batch with its id.
type repetition uint8

const (
	unique      repetition = iota
	repeated               // a later operation is the same in all respects; that one stands
	conflicting            // another one has the same id and other content
)

// repetitions finds the operations of a batch that share an id, nil if there are
// none. An id gets one verdict: equal operations count as one, in the last one's
// place, and different ones cannot be told apart in a verdict.
func repetitions(ops []protocol.ClientOp) []repetition {
	if ascending(ops) {
		return nil
	}
	first := make(map[string]int, len(ops))
	var found []repetition
	for i := range ops {
		id := ops[i].ID
		if id == "" {
			continue
		}
		j, seen := first[id]
		if !seen {
			first[id] = i
			continue
		}
		if found == nil {
			found = make([]repetition, len(ops))
		}
		mark(ops, found, j, i)
		first[id] = i
	}
	return found
}

// ascending reports whether every id is greater than the one before, as those of
// counting clients are: no two are equal then.
func ascending(ops []protocol.ClientOp) bool {
	previous := ""
	for i := range ops {
		id := ops[i].ID
		if len(id) < len(previous) || len(id) == len(previous) && id <= previous {
			return false
		}
		previous = id
	}
	return true
}

// mark notes that ops i and j, i later, have the same id.
func mark(ops []protocol.ClientOp, found []repetition, j, i int) {
	if found[j] != conflicting && reflect.DeepEqual(ops[i], ops[j]) {
		found[j] = repeated
		return
	}
	found[i], found[j] = conflicting, conflicting
}
