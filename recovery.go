package quorate

import (
	"time"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
)

// RecoverOptions says how far Recover goes.
type RecoverOptions struct {
	// Confirm rewrites the node. Without it Recover only reports.
	Confirm bool
	// StartEmpty begins groups anew of which the node has nothing.
	StartEmpty bool
}

// Recovery is what a stopped node has, and what became of it.
type Recovery struct {
	NodeID   string `json:"nodeId"`
	ServerID string `json:"serverId"`
	// ClusterID is the cluster that the node belongs to, NewClusterID what it is called
	// when it is recovered.
	ClusterID    string `json:"clusterId"`
	NewClusterID string `json:"newClusterId,omitempty"`
	// Begun tells that an earlier recovery was not finished: the node does not start until
	// this one is.
	Begun bool `json:"begun"`
	// Done tells that the node is recovered.
	Done bool `json:"done"`
	// Groups are the groups of the cluster, also those of which the node has nothing.
	Groups []GroupRemains `json:"groups"`
	// Members are the others that the node knows.
	Members []LostMember `json:"members"`
}

// GroupRemains is what a stopped node has of one group.
type GroupRemains struct {
	Group uint32 `json:"group"`
	// Held is false when the node has nothing of the group.
	Held bool `json:"held"`
	// Term, LastTerm and LastIndex are the greatest term that the replica took part in,
	// and the last entry. LastAt is when its leader wrote it, zero if that is not known.
	Term      uint64    `json:"term"`
	LastTerm  uint64    `json:"lastTerm"`
	LastIndex uint64    `json:"lastIndex"`
	LastAt    time.Time `json:"lastAt,omitzero"`
	// FlushedIndex is the end of the stored state, CommitIndex the last entry that is known
	// to be committed. Unknown entries behind it may have been committed or not; a recovery
	// keeps them.
	FlushedIndex uint64 `json:"flushedIndex"`
	CommitIndex  uint64 `json:"commitIndex"`
	Unknown      uint64 `json:"unknown"`
	// Voters and Nonvoters are server ids.
	Voters    []string `json:"voters"`
	Nonvoters []string `json:"nonvoters"`
}

// LostMember is another member of the cluster of a stopped node.
type LostMember struct {
	ServerID string `json:"serverId"`
	NodeID   string `json:"nodeId"`
	Status   string `json:"status"`
	PeerAddr string `json:"peerAddr"`
	// Answers tells that it runs, so that there is no reason to recover.
	Answers bool `json:"answers"`
}

// Missing are the groups of which the node has nothing.
func (r *Recovery) Missing() []uint32 {
	var list []uint32
	for _, g := range r.Groups {
		if !g.Held {
			list = append(list, g.Group)
		}
	}
	return list
}

// report says what was found.
func (r *recoverer) report() *Recovery {
	s := &r.survivor
	report := &Recovery{
		NodeID: s.NodeID, ServerID: string(s.ID()), ClusterID: s.ClusterID,
		NewClusterID: s.Recovering, Begun: s.Recovering != "", Members: []LostMember{},
	}
	for _, g := range r.groups {
		m := g.Remains()
		report.Groups = append(report.Groups, GroupRemains{
			Group: m.Group, Held: m.Held(), Term: m.Term, LastTerm: m.LastTerm, LastIndex: m.LastIndex, LastAt: m.LastAt,
			FlushedIndex: m.FlushedIndex, CommitIndex: m.CommitIndex, Unknown: m.Unknown(),
			Voters: texts(m.Voters), Nonvoters: texts(m.Nonvoters),
		})
	}
	for _, m := range r.state.Members {
		if m.ID == report.ServerID || m.Status == system.StatusRemoved {
			continue
		}
		addr := m.PeerAddr
		if newer, ok := s.Addrs[raftnode.ServerID(m.ID)]; ok {
			addr = newer
		}
		report.Members = append(report.Members, LostMember{ServerID: m.ID, NodeID: m.NodeID, Status: m.Status.String(), PeerAddr: addr})
	}
	return report
}
