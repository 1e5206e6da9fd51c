// Package placement is the arithmetic of the partition table: which group owns a
// partition, which nodes hold a group, and which of them should lead it. Every
// function is pure, so all nodes that start from equal facts reach equal plans.
package placement

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
)

// SystemGroup is the group that replicates the cluster's own documents.
const SystemGroup uint32 = 0

// Group is the group that owns partition in a cluster of the given number of data
// groups. Data groups are numbered from 1. The mapping is fixed for the life of
// the cluster.
func Group(partition, groups uint32) uint32 {
	return 1 + partition%groups
}

// GroupOf is the group that owns key.
func GroupOf(key string, groups uint32) uint32 {
	return Group(protocol.Partition(key), groups)
}

// Plan chooses, for each data group in order, the voters among members and the one
// that should lead. Up to rf members hold a group; with more members each group
// goes to the rf that rank highest by rendezvous hash, capped so that the load of
// two members differs by at most one where that is possible. A voter of previous
// keeps its place while the cap allows. Leaders are spread evenly over the voters
// that are active; a previous choice stays while the spread allows. members that
// are failed, removed or leaving are not considered: the caller leaves dead ones
// in the list as long as they are not to be replaced.
func Plan(members []system.Member, groups uint32, rf int, previous *system.Table) []system.Placement {
	nodes := eligible(members)
	plan := make([]system.Placement, groups)
	if len(nodes) == 0 {
		return plan
	}
	assignVoters(plan, nodes, min(rf, len(nodes)), previous)
	assignLeaders(plan, nodes, previous)
	return plan
}

func eligible(members []system.Member) []system.Member {
	var nodes []system.Member
	for _, m := range members {
		switch m.Status {
		case system.StatusRemoved, system.StatusLeaving:
		default:
			nodes = append(nodes, m)
		}
	}
	slices.SortFunc(nodes, func(a, b system.Member) int { return cmp.Compare(a.ID, b.ID) })
	return nodes
}

// assignVoters fills plan[i].Voters, sorted by id.
func assignVoters(plan []system.Placement, nodes []system.Member, rf int, previous *system.Table) {
	capacity := (len(plan)*rf + len(nodes) - 1) / len(nodes)
	load := map[string]int{}
	for g := range plan {
		ranked := slices.Clone(nodes)
		held := func(id string) bool {
			return previous != nil && g < len(previous.Groups) && slices.Contains(previous.Groups[g].Voters, id)
		}
		slices.SortStableFunc(ranked, func(a, b system.Member) int {
			if ha, hb := held(a.ID), held(b.ID); ha != hb {
				if ha {
					return -1
				}
				return 1
			}
			return cmp.Compare(weight(uint32(g), b.ID), weight(uint32(g), a.ID))
		})
		plan[g].Voters = pick(ranked, rf, capacity, load)
	}
}

// pick takes the first rf of ranked whose load is under capacity, then, if too few
// are, the first of the others.
func pick(ranked []system.Member, rf, capacity int, load map[string]int) []string {
	var voters []string
	for _, within := range []bool{true, false} {
		for _, m := range ranked {
			if len(voters) == rf {
				break
			}
			if (load[m.ID] < capacity) == within && !slices.Contains(voters, m.ID) {
				voters = append(voters, m.ID)
				load[m.ID]++
			}
		}
	}
	slices.Sort(voters)
	return voters
}

// assignLeaders fills plan[i].Preferred: the active voter with the fewest groups
// so far, the previous choice first among equals.
func assignLeaders(plan []system.Placement, nodes []system.Member, previous *system.Table) {
	active := map[string]bool{}
	for _, m := range nodes {
		active[m.ID] = m.Status == system.StatusActive
	}
	leads := map[string]int{}
	for g := range plan {
		var last string
		if previous != nil && g < len(previous.Groups) {
			last = previous.Groups[g].Preferred
		}
		candidates := slices.DeleteFunc(slices.Clone(plan[g].Voters), func(id string) bool { return !active[id] })
		if len(candidates) == 0 {
			continue
		}
		plan[g].Preferred = slices.MinFunc(candidates, func(a, b string) int {
			if c := cmp.Compare(leads[a], leads[b]); c != 0 {
				return c
			}
			if (a == last) != (b == last) {
				if a == last {
					return -1
				}
				return 1
			}
			return cmp.Compare(weight(uint32(g), b), weight(uint32(g), a))
		})
		leads[plan[g].Preferred]++
	}
}

// weight is the rendezvous hash of a group and a node (Thaler and Ravishankar,
// "Using name-based mappings to increase hit rates", 1998).
func weight(group uint32, id string) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(uint64(group) + 1)
	_, _ = d.WriteString(id)
	return d.Sum64()
}
