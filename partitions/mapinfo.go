package partitions

import (
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/protocol"
)

// mapInfo renders the replicated cluster state as clients see it: only nodes that
// are up, the leader of a partition's group as its owner, and the group's other
// live voters as backups. Nodes are named by node id.
func mapInfo(state *system.State) *MapInfo {
	info := &MapInfo{Version: mapVersion(state)}
	live := map[string]string{}
	for _, m := range state.Members {
		switch m.Status {
		case system.StatusRemoved, system.StatusFailed:
			continue
		default:
		}
		live[m.ID] = m.NodeID
		info.Nodes = append(info.Nodes, NodeInfo{NodeID: m.NodeID, WebSocket: m.ClientURL, Status: statusText(m.Status)})
	}
	groups := uint32(len(state.Table.Groups))
	if groups == 0 {
		return info
	}
	owners := make([]string, groups)
	backups := make([][]string, groups)
	for g, p := range state.Table.Groups {
		owners[g], backups[g] = ownerAndBackups(p, live)
	}
	for p := range uint32(protocol.PartitionCount) {
		g := placement.Group(p, groups) - 1
		info.Owner[p], info.Backups[p] = owners[g], backups[g]
	}
	return info
}

// ownerAndBackups names the live leader of a group, or its first live voter while
// the leader is not known to be alive, and the other live voters.
func ownerAndBackups(p system.Placement, live map[string]string) (owner string, backups []string) {
	leader := p.Leader
	if live[leader] == "" {
		leader = ""
		for _, id := range p.Voters {
			if live[id] != "" {
				leader = id
				break
			}
		}
	}
	backups = []string{}
	for _, id := range p.Voters {
		if id != leader && live[id] != "" {
			backups = append(backups, live[id])
		}
	}
	return live[leader], backups
}

// mapVersion grows with every change of a member or of the table: documents are
// never deleted and their versions only rise, so the sum is equal on all nodes
// with equal state and increases from one state to the next.
func mapVersion(state *system.State) uint32 {
	v := uint64(state.Table.Version)
	for _, m := range state.Members {
		v += m.Version
	}
	return uint32(max(v, 1))
}

func statusText(s system.Status) string {
	switch s {
	case system.StatusActive:
		return "ACTIVE"
	case system.StatusJoining:
		return "JOINING"
	case system.StatusLeaving:
		return "LEAVING"
	case system.StatusSuspect:
		return "SUSPECTED"
	default:
		return "FAILED"
	}
}
