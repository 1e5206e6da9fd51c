package ws

import (
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

// pushPrunes tells every client after tombstones were collected, until the Server
// closes: clients that drop the same ones have the same hash trees. On this occasion it
// also tells who has seen everything until now that it has: a client that stays for long
// would otherwise pass for one that was away.
func (s *Server) pushPrunes(b Backend, collected <-chan struct{}) {
	covered := int64(0)
	for {
		select {
		case <-s.base.Done():
			return
		case <-collected:
		}
		horizon, err := b.Horizon()
		if err != nil {
			s.log.Debug("clients are not told what was collected", "err", err) // the next round tells more
			continue
		}
		frame, err := protocol.AppendStamped(nil, pruneOf(horizon), b.Now())
		if err != nil {
			s.log.Error("encode prune notice", "err", err)
			continue
		}
		for _, c := range s.all() {
			if c.live.Load() && horizon.PrunedMillis > 0 {
				// A client that has no room for it keeps its tombstones a while longer.
				_ = c.out.push(protocol.KindGCPrune, frame)
				c.syncs.isPruned(horizon)
				c.pushEpoch(covered)
			}
		}
		// What is pushed the next time has long been delivered then.
		covered = horizon.Epoch
	}
}

// pushEpoch tells the client how far it knows the removals of the observed-remove maps
// that it follows.
func (c *conn) pushEpoch(epoch int64) {
	if epoch <= 0 {
		return
	}
	for _, name := range c.syncs.freshMaps() {
		m := &protocol.ORMapDiffResponse{MapName: name, Entries: []protocol.OREntry{}, CoveringEpoch: epoch}
		frame, err := protocol.Append(nil, m)
		if err != nil {
			c.srv.log.Error("encode epoch", "err", err)
			return
		}
		_ = c.out.push(protocol.KindORMapDiffResponse, frame) // the next one covers more
	}
}

func pruneOf(h partitions.Horizon) *protocol.GCPrune {
	return &protocol.GCPrune{OlderThan: protocol.Timestamp{Millis: h.PrunedMillis}}
}

// isPruned notes that the client was told of h, and reports whether it needed to be.
func (s *syncer) isPruned(h partitions.Horizon) (needed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	needed = h.CollectedMillis > 0 && h.PrunedMillis > s.pruned && h.CollectedMillis > s.pruned
	if needed {
		s.pruned = h.PrunedMillis
	}
	return needed
}

// withPrune is the answer of a root, in front of which the client is told to drop the
// tombstones that root does not count any more.
func (s *syncer) withPrune(h partitions.Horizon, root protocol.Message) []syncAnswer {
	if s.isPruned(h) {
		return append(answer(pruneOf(h)), answer(root)...)
	}
	return answer(root)
}
