package ws

import (
	"github.com/quorate/quorate/protocol"
)

// pushPrunes tells every client after tombstones were collected, until the Server
// closes: clients that drop the same ones have the same hash trees.
func (s *Server) pushPrunes(b Backend, collected <-chan struct{}) {
	for {
		select {
		case <-s.base.Done():
			return
		case <-collected:
		}
		before := b.Horizon().PrunedMillis
		if before <= 0 {
			continue
		}
		frame, err := protocol.Append(nil, &protocol.GCPrune{OlderThan: protocol.Timestamp{Millis: before}})
		if err != nil {
			s.log.Error("encode prune notice", "err", err)
			continue
		}
		for _, c := range s.all() {
			if c.live.Load() {
				// A client that has no room for it keeps its tombstones a while longer.
				_ = c.out.push(protocol.KindGCPrune, frame)
			}
		}
	}
}
