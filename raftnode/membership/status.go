package membership

import (
	"time"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
)

// MemberStatus is one member as a node sees it.
type MemberStatus struct {
	system.Member
	// Silence is how long ago the node heard of it last, zero for itself.
	Silence time.Duration
}

// Status is the cluster as one node sees it, for operators.
type Status struct {
	ID        raftnode.ServerID
	Addr      string
	ClusterID string
	Phase     Phase
	CaughtUp  bool
	// Members are in the order of their ids, removed ones included.
	Members []MemberStatus
	Table   system.Table
	// Groups are the replicas on the node.
	Groups []raftnode.Status
}

// Status reports what this node knows.
func (a *Agent) Status() Status {
	s := Status{
		ID: a.id, Addr: a.deps.Mux.Addr(), ClusterID: a.record().ClusterID, Phase: a.Phase(), CaughtUp: a.CaughtUp(),
	}
	if state := a.State(); state != nil {
		s.Table = state.Table
		for _, m := range state.Members {
			member := MemberStatus{Member: m}
			if m.ID != string(a.id) {
				member.Silence = a.peers.detector.silence(m.ID, time.Now())
			}
			s.Members = append(s.Members, member)
		}
	}
	for _, g := range a.deps.Host.Groups() {
		s.Groups = append(s.Groups, g.Status())
	}
	return s
}
