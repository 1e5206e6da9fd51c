package partitions

import (
	"sync"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/partitions/locks"
)

// Session is what the router remembers of one client connection: the origin that
// marks its writes, so that they are not echoed to it, and how far each group had
// come when a write of the connection was acknowledged, so that its reads are
// never older. Safe for concurrent use.
type Session struct {
	origin string
	locks  *locks.Session

	// mu protects seen.
	mu   sync.Mutex
	seen map[uint32]uint64
}

// advance notes that results of group are known to the client.
func (s *Session) advance(group uint32, results []command.Result) {
	index := uint64(0)
	for i := range results {
		index = max(index, results[i].Index)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[uint32]uint64{}
	}
	s.seen[group] = max(s.seen[group], index)
}

func (s *Session) index(group uint32) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[group]
}
