package membership

import (
	"sync"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
)

// catchUp decides when a node has caught up with its cluster. It is safe for
// concurrent use.
type catchUp struct {
	mu sync.Mutex // protects the fields below
	// targets is, per group, what the leader had committed when it was first met.
	targets map[uint32]uint64
	all     bool
}

func newCatchUp() *catchUp { return &catchUp{targets: map[uint32]uint64{}} }

// reached reports whether look has ever found all targets reached.
func (c *catchUp) reached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

// look reports whether every replica on this node has a leader and has applied what
// was committed when the leader was first met.
func (c *catchUp) look(host *raftnode.Host, peers *peerBook, state *system.State, self raftnode.ServerID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	complete := true
	for i, p := range state.Table.Groups {
		if _, running := host.Group(uint32(i) + 1); !running && contains(p.Voters, self) {
			return false
		}
	}
	for _, g := range host.Groups() {
		complete = c.groupLocked(g.Status(), peers) && complete
	}
	c.all = c.all || complete
	return complete
}

func (c *catchUp) groupLocked(s raftnode.Status, peers *peerBook) bool {
	if s.Ready {
		return true
	}
	target, met := c.targets[s.Group]
	if !met {
		leader, ok := peers.get(s.Leader)
		if !ok {
			return false
		}
		// Only the leader's own word counts: another follower may be behind too.
		r, ok := leader.report(s.Group)
		if !ok || r.Leader != s.Leader || r.Commit == 0 {
			return false
		}
		target = r.Commit
		c.targets[s.Group] = target
	}
	return s.Leader != "" && s.AppliedIndex >= target
}
