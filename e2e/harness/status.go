package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Status is what `quorate status --json` prints, as far as tests look at it.
type Status struct {
	NodeID    string         `json:"nodeId"`
	ServerID  string         `json:"serverId"`
	ClusterID string         `json:"clusterId"`
	Phase     string         `json:"phase"`
	Ready     bool           `json:"ready"`
	Groups    []GroupStatus  `json:"groups"`
	Members   []MemberStatus `json:"members"`
}

// GroupStatus is one replica of a Raft group.
type GroupStatus struct {
	Group        uint32   `json:"group"`
	Role         string   `json:"role"`
	Term         uint64   `json:"term"`
	Leader       string   `json:"leader"`
	CommitIndex  uint64   `json:"commitIndex"`
	AppliedIndex uint64   `json:"appliedIndex"`
	FlushedIndex uint64   `json:"flushedIndex"`
	Digest       string   `json:"digest"`
	DigestIndex  uint64   `json:"digestIndex"`
	Voters       []string `json:"voters"`
}

// MemberStatus is one member as a node sees it.
type MemberStatus struct {
	ServerID string `json:"serverId"`
	NodeID   string `json:"nodeId"`
	Status   string `json:"status"`
	Leads    int    `json:"leads"`
}

// Status asks the node for its status.
func (n *Node) Status() (*Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	out, err := n.Tool(ctx, "status", "--json")
	if err != nil {
		return nil, err
	}
	s := &Status{}
	if err := json.Unmarshal(out, s); err != nil {
		return nil, fmt.Errorf("status of %s: %w", n.Name, err)
	}
	return s, nil
}

// Leader is the node id of the leader of a group, as this node knows it, or empty.
func (s *Status) Leader(group uint32) string {
	for _, g := range s.Groups {
		if g.Group == group {
			node, _, _ := strings.Cut(g.Leader, "#")
			return node
		}
	}
	return ""
}

// Leading counts the groups that the node leads.
func (s *Status) Leading() int {
	n := 0
	for _, g := range s.Groups {
		if g.Role == "leader" {
			n++
		}
	}
	return n
}

// compareReplicas returns an error in diverged when two replicas differ at the same
// index, and one in behind when not all are at the same index.
func compareReplicas(all []*Status) (diverged, behind error) {
	type at struct {
		node   string
		digest string
		index  uint64
	}
	byGroup := make(map[uint32][]at)
	for _, s := range all {
		for _, g := range s.Groups {
			byGroup[g.Group] = append(byGroup[g.Group], at{s.NodeID, g.Digest, g.DigestIndex})
		}
	}
	for group, list := range byGroup {
		for i, a := range list {
			for _, b := range list[:i] {
				if a.index == b.index && a.digest != b.digest {
					diverged = fmt.Errorf("group %d differs at index %d: %s has %s, %s has %s", group, a.index, a.node, a.digest, b.node, b.digest)
				}
				if a.index != b.index {
					behind = fmt.Errorf("group %d is at %d on %s and at %d on %s", group, a.index, a.node, b.index, b.node)
				}
			}
		}
		if want, _ := replicas(group, len(all)); len(list) != want {
			behind = fmt.Errorf("group %d has %d replicas", group, len(list))
		}
	}
	return diverged, behind
}
