package placement_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/partitions/placement"
)

func members(n int) []system.Member {
	var ms []system.Member
	for i := range n {
		ms = append(ms, system.Member{ID: fmt.Sprintf("n%d#1", i), NodeID: fmt.Sprintf("n%d", i), Status: system.StatusActive})
	}
	return ms
}

func TestGroupOfIsTheFixedMapping(t *testing.T) {
	require.Equal(t, uint32(1+95%6), placement.GroupOf("hello", 6))
	require.Equal(t, uint32(1+268%6), placement.GroupOf("key1", 6))
	for p := range uint32(271) {
		g := placement.Group(p, 6)
		require.True(t, g >= 1 && g <= 6)
	}
}

func TestUpToThreeNodesHoldEveryGroup(t *testing.T) {
	for n := 1; n <= 3; n++ {
		for _, p := range placement.Plan(members(n), 6, 3, nil) {
			require.Len(t, p.Voters, n)
		}
	}
}

func TestLoadsDifferByAtMostOne(t *testing.T) {
	for n := 1; n <= 9; n++ {
		voters, leads := map[string]int{}, map[string]int{}
		plan := placement.Plan(members(n), 6, 3, nil)
		for _, p := range plan {
			require.Len(t, p.Voters, min(3, n))
			require.Contains(t, p.Voters, p.Preferred)
			leads[p.Preferred]++
			for _, v := range p.Voters {
				voters[v]++
			}
		}
		for i := range n {
			id := fmt.Sprintf("n%d#1", i)
			require.Contains(t, []int{6 * min(3, n) / n, (6*min(3, n) + n - 1) / n}, voters[id], "%d nodes", n)
			if n <= 3 {
				require.Equal(t, 6/n, leads[id], "%d nodes", n)
			}
		}
	}
}

// TestACoreThatGrowsGivesItsReplicasAway adds nodes one at a time, or several at once, to
// three that hold everything.
func TestACoreThatGrowsGivesItsReplicasAway(t *testing.T) {
	for _, sizes := range [][]int{{3, 4, 5, 6, 7, 8, 9}, {3, 5}, {3, 9}, {1, 2, 5}, {9, 5, 4}} {
		var table *system.Table
		for _, n := range sizes {
			plan := placement.Plan(members(n), 6, 3, table)
			load := map[string]int{}
			for _, p := range plan {
				require.Len(t, p.Voters, min(3, n))
				for _, v := range p.Voters {
					load[v]++
				}
			}
			for _, m := range members(n) {
				require.Contains(t, []int{6 * min(3, n) / n, (6*min(3, n) + n - 1) / n}, load[m.ID], "%d of %v: %v", n, sizes, load)
			}
			table = &system.Table{Groups: plan}
		}
	}
}

func TestReplanningUnchangedMembersChangesNothing(t *testing.T) {
	for n := 1; n <= 9; n++ {
		first := placement.Plan(members(n), 6, 3, nil)
		again := placement.Plan(members(n), 6, 3, &system.Table{Groups: first})
		require.Equal(t, first, again, "%d nodes", n)
	}
}

func TestLosingOneNodeMovesOnlyItsReplicas(t *testing.T) {
	before := placement.Plan(members(5), 6, 3, nil)
	rest := members(5)[1:]
	after := placement.Plan(rest, 6, 3, &system.Table{Groups: before})
	for g := range before {
		kept := 0
		for _, v := range before[g].Voters {
			if v == "n0#1" {
				continue
			}
			for _, w := range after[g].Voters {
				if v == w {
					kept++
				}
			}
		}
		require.GreaterOrEqual(t, kept, len(before[g].Voters)-1-1, "group %d", g+1)
		require.Len(t, after[g].Voters, 3)
		require.NotContains(t, after[g].Voters, "n0#1")
	}
}

func TestOnlyActiveNodesArePreferredAndRemovedOnesHoldNothing(t *testing.T) {
	ms := members(4)
	ms[0].Status = system.StatusSuspect
	ms[1].Status = system.StatusRemoved
	for _, p := range placement.Plan(ms, 6, 3, nil) {
		require.NotEqual(t, "n0#1", p.Preferred)
		require.Contains(t, p.Voters, "n0#1")
		require.NotContains(t, p.Voters, "n1#1")
	}
}
