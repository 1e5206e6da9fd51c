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
// goes to the rf that rank highest by rendezvous hash, as far as the loads of two members
// then differ by at most one. A voter of previous keeps its place as far as they do. Leaders are spread evenly over the voters
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

// assignVoters fills plan[i].Voters, sorted by id. A node is taken in the order of
// preference unless the loads could not be even in the end.
func assignVoters(plan []system.Placement, nodes []system.Member, rf int, previous *system.Table) {
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
		for _, m := range ranked {
			if len(plan[g].Voters) == rf {
				break
			}
			taken := append(slices.Clip(plan[g].Voters), m.ID)
			if endsEven(load, nodes, taken, rf, len(plan)-g-1) {
				plan[g].Voters = taken
			}
		}
		for _, id := range plan[g].Voters {
			load[id]++
		}
		slices.Sort(plan[g].Voters)
	}
}

// endsEven reports whether the loads can differ by at most one in the end, with some voters
// of the present group taken and so many groups to come. Taking the least loaded nodes each
// time gives the most even loads.
func endsEven(load map[string]int, nodes []system.Member, taken []string, rf, groups int) bool {
	loads := make([]int, 0, len(nodes))
	var others []int
	for _, m := range nodes {
		if slices.Contains(taken, m.ID) {
			loads = append(loads, load[m.ID]+1)
		} else {
			others = append(others, load[m.ID])
		}
	}
	addToLeast(others, rf-len(taken))
	loads = append(loads, others...)
	for range groups {
		addToLeast(loads, rf)
	}
	return slices.Max(loads)-slices.Min(loads) <= 1
}

// addToLeast raises the n least loads.
func addToLeast(loads []int, n int) {
	slices.Sort(loads)
	for i := range n {
		loads[i]++
	}
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
