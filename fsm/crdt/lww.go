// Package crdt holds the merge rules of replicated data as pure functions: they
// read only their arguments, so that every replica and every client decides
// alike.
package crdt

import "github.com/quorate/quorate/protocol"

// maxExact is the greatest integer that clients hold exactly (2^53-1). Stamps
// beyond it would compare differently on clients.
const maxExact = 1<<53 - 1

// Wins decides a last-write-wins merge: whether a record stamped incoming
// replaces one stamped existing. Strictly greater wins; on equal stamps the
// existing record stays, whatever the values. Values, tombstones and expiry never
// decide. The rule is a join of a semilattice over distinct stamps (Shapiro et
// al., "A comprehensive study of Convergent and Commutative Replicated Data
// Types", 2011, section 3.2.1), so replicas that saw the same records agree.
func Wins(existing, incoming protocol.Timestamp) bool {
	return incoming.Compare(existing) > 0
}

// Merge is the last-write-wins merge of two records: the one that stays, and
// whether it is incoming. existing is nil when there is no record yet.
func Merge(existing *protocol.Record, incoming protocol.Record) (protocol.Record, bool) {
	if existing == nil || Wins(existing.Timestamp, incoming.Timestamp) {
		return incoming, true
	}
	return *existing, false
}

// Above is the stamp that node issues next to a stamp that is already taken: stamp
// itself when it is greater than met, otherwise the smallest stamp of stamp's node
// that is greater than met. It serves writes whose order is commit order.
func Above(met, stamp protocol.Timestamp) protocol.Timestamp {
	if Wins(met, stamp) {
		return stamp
	}
	raised := protocol.Timestamp{Millis: met.Millis, Counter: met.Counter + 1, NodeID: stamp.NodeID}
	if raised.Counter > maxExact {
		raised.Millis, raised.Counter = met.Millis+1, 0
	}
	return raised
}
