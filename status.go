package quorate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
)

// Status is what one node knows about itself and its cluster. It is also the JSON
// that `quorate status` prints; digests are hexadecimal text there, because they
// use all 64 bits.
type Status struct {
	// NodeID and ServerID name the node and this life of its data.
	NodeID   string `json:"nodeId"`
	ServerID string `json:"serverId"`
	Version  string `json:"version"`
	// ClusterID is empty until the node belongs to a cluster.
	ClusterID string `json:"clusterId"`
	// Phase is where the node stands: fresh, forming, joining, catching-up, member
	// or leaving.
	Phase string `json:"phase"`
	// Health is the state that /health reports, Ready the answer of the readiness
	// probe. Empty and false on a Node without a client listener.
	Health string `json:"health"`
	Ready  bool   `json:"ready"`
	// PeerAddr and ClientURL are the addresses given to peers and to clients.
	PeerAddr  string `json:"peerAddr"`
	ClientURL string `json:"clientUrl"`
	// Connections are the clients of the node, MemoryBytes what its process holds.
	Connections int    `json:"connections"`
	MemoryBytes uint64 `json:"memoryBytes"`
	// UptimeSeconds counts from the start of the process.
	UptimeSeconds int64 `json:"uptimeSeconds"`
	// DatabasePending is the number of changed keys, of groups that this node leads, which
	// the database of the relational backend does not have yet.
	DatabasePending int `json:"databasePending,omitempty"`
	// Groups are the Raft groups with a replica on this node, by number; group 0 is
	// the system group.
	Groups []GroupStatus `json:"groups"`
	// Members are the cluster's nodes as this node's replica of the system group
	// knows them, by server id.
	Members []MemberStatus `json:"members"`
	// LogDamage is what a scrub found in the node's log and could not mend. The node would
	// not start again.
	LogDamage string `json:"logDamage,omitempty"`
}

// GroupStatus is one replica of a Raft group.
type GroupStatus struct {
	Group uint32 `json:"group"`
	// Role is leader, candidate, follower or shutdown; a non-voter is a follower. It is
	// damaged for a replica that is out of service because its state is; Damage says why,
	// and all else is empty.
	Role string `json:"role"`
	Term uint64 `json:"term"`
	// Leader is the server id of the leader as this replica knows it, or empty.
	Leader string `json:"leader"`
	// CommitIndex, AppliedIndex and FlushedIndex say how far the log is committed,
	// merged into the state, and contained in the durable store. Lag is how many
	// committed entries are not applied yet.
	CommitIndex  uint64 `json:"commitIndex"`
	AppliedIndex uint64 `json:"appliedIndex"`
	FlushedIndex uint64 `json:"flushedIndex"`
	Lag          uint64 `json:"lag"`
	// FirstLog and LastLog bound the log that the node holds.
	FirstLog uint64 `json:"firstLog"`
	LastLog  uint64 `json:"lastLog"`
	// Digest is the state's digest at DigestIndex, in hexadecimal. Replicas with
	// equal DigestIndex have equal digests.
	Digest      string `json:"digest"`
	DigestIndex uint64 `json:"digestIndex"`
	// Voters and Nonvoters are server ids.
	Voters    []string `json:"voters"`
	Nonvoters []string `json:"nonvoters"`
	// LastContactMillis is how long ago a follower heard from its leader, 0 on the
	// leader, -1 if it never did.
	LastContactMillis int64 `json:"lastContactMs"`
	// Damage is what was found to be damaged, if anything, and why it was not replaced by
	// another node's yet.
	Damage string `json:"damage,omitempty"`
	// SetAside is how many damaged states of the group take space in the node's store.
	SetAside int `json:"setAside,omitempty"`
}

// MemberStatus is one node of the cluster.
type MemberStatus struct {
	ServerID string `json:"serverId"`
	NodeID   string `json:"nodeId"`
	// Status is joining, active, suspect, leaving, failed or removed.
	Status    string `json:"status"`
	PeerAddr  string `json:"peerAddr"`
	ClientURL string `json:"clientUrl"`
	// Leads and Votes count the data groups that the node leads and votes in.
	Leads int `json:"leads"`
	Votes int `json:"votes"`
	// SilenceMillis is how long ago this node heard of the member, 0 for itself.
	SilenceMillis int64 `json:"silenceMs"`
}

// Status returns what the node knows; see Server.Status.
func (n *Node) Status() *Status {
	a := n.agent.Status()
	s := &Status{
		NodeID:    n.cfg.NodeID,
		ServerID:  string(a.ID),
		Version:   Version,
		ClusterID: a.ClusterID,
		Phase:     a.Phase.String(),
		PeerAddr:  a.Addr,
		ClientURL: n.cfg.Membership.ClientURL,
		Groups:    []GroupStatus{},
		Members:   []MemberStatus{},
	}
	if n.mirror != nil {
		s.DatabasePending = n.mirror.Pending()
	}
	if damage := n.logDamage.Load(); damage != nil {
		s.LogDamage = *damage
	}
	now := time.Now()
	for i := range a.Groups {
		s.Groups = append(s.Groups, groupStatus(&a.Groups[i], now))
	}
	for _, d := range n.host.Damaged() {
		s.Groups = append(s.Groups, GroupStatus{
			Group: d.Group, Role: "damaged", Damage: n.repairs.explain(d), Voters: []string{}, Nonvoters: []string{}, LastContactMillis: -1,
		})
	}
	for i := range s.Groups {
		s.Groups[i].SetAside = n.repairs.setAside(s.Groups[i].Group)
	}
	slices.SortFunc(s.Groups, func(a, b GroupStatus) int { return cmp.Compare(a.Group, b.Group) })
	for _, m := range a.Members {
		s.Members = append(s.Members, MemberStatus{
			ServerID: m.ID, NodeID: m.NodeID, Status: m.Status.String(), PeerAddr: m.PeerAddr, ClientURL: m.ClientURL,
			Leads:         count(a.Table, func(p *system.Placement) bool { return p.Leader == m.ID }),
			Votes:         count(a.Table, func(p *system.Placement) bool { return slices.Contains(p.Voters, m.ID) }),
			SilenceMillis: m.Silence.Milliseconds(),
		})
	}
	return s
}

func groupStatus(g *raftnode.Status, now time.Time) GroupStatus {
	s := GroupStatus{
		Group:       g.Group,
		Role:        strings.ToLower(g.Role.String()),
		Term:        g.Term,
		Leader:      string(g.Leader),
		CommitIndex: g.CommitIndex, AppliedIndex: g.AppliedIndex, FlushedIndex: g.FlushedIndex,
		FirstLog: g.FirstLog, LastLog: g.LastLog,
		Digest: fmt.Sprintf("%016x", g.Digest), DigestIndex: g.DigestIndex,
		Voters: texts(g.Voters), Nonvoters: texts(g.Nonvoters),
		LastContactMillis: -1,
	}
	// The two are read one after the other.
	s.Lag = max(g.CommitIndex, g.AppliedIndex) - g.AppliedIndex
	switch {
	case s.Role == "leader":
		s.LastContactMillis = 0
	case !g.LastContact.IsZero():
		s.LastContactMillis = now.Sub(g.LastContact).Milliseconds()
	}
	return s
}

func count(t system.Table, is func(*system.Placement) bool) int {
	n := 0
	for i := range t.Groups {
		if is(&t.Groups[i]) {
			n++
		}
	}
	return n
}

func texts(ids []raftnode.ServerID) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = string(id)
	}
	return list
}
