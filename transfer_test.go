package quorate_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// await polls until ok, in virtual time.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// startThree starts a cluster of three that has spread its groups.
func startThree(t *testing.T, network *memnet.Network) []*simNode {
	t.Helper()
	seeds := []string{"n1:7000", "n2:7000", "n3:7000"}
	var nodes []*simNode
	for _, id := range []string{"n1", "n2", "n3"} {
		nodes = append(nodes, startNode(t, network, id, seeds...))
	}
	for _, n := range nodes {
		n.awaitCaughtUp(t)
		await(t, "three voters of every group", func() bool {
			for _, g := range n.Status().Groups {
				if len(g.Voters) != 3 {
					return false
				}
			}
			return true
		})
	}
	return nodes
}

// transfer asks n until the transfer is not refused as premature.
func transfer(t *testing.T, n *simNode, group uint32, to string) *quorate.Transfer {
	t.Helper()
	var done *quorate.Transfer
	await(t, "a transfer", func() bool {
		var err error
		done, err = n.TransferLeadership(t.Context(), group, to)
		if err != nil && !errors.Is(err, quorate.ErrLagging) && !errors.Is(err, quorate.ErrNoLeader) {
			t.Fatal(err)
		}
		return err == nil
	})
	return done
}

// leads reports whether n leads the group.
func leads(n *simNode, group uint32) bool { return n.Status().Groups[group].Role == "leader" }

func TestLeadershipIsHandedOverThroughAnyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(1)
		nodes := startThree(t, network)
		for i, asked := range nodes {
			for _, group := range []uint32{0, 1} {
				to := nodes[(i+1)%3]
				done := transfer(t, asked, group, []string{"n2", "n3", "n1"}[i])
				if done.To != to.Status().ServerID || done.Group != group || !leads(to, group) {
					t.Errorf("asked %s: %+v", asked.Status().NodeID, done)
				}
				again := transfer(t, asked, group, done.To)
				if again.From != done.To || again.To != done.To {
					t.Errorf("once more: %+v", again)
				}
				for _, other := range nodes {
					await(t, "news of the leader", func() bool { return other.Status().Groups[group].Leader == done.To })
				}
			}
		}
		if done := transfer(t, nodes[0], 2, ""); done.From == done.To || done.To == "" {
			t.Errorf("to any node: %+v", done)
		}
		for _, n := range nodes {
			if err := n.end(t); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestTransfersAreRefusedByClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(1)
		nodes := startThree(t, network)
		names := []string{"n1", "n2", "n3"}
		leader := 0
		for i, n := range nodes {
			if leads(n, 1) {
				leader = i
			}
		}
		for _, asked := range nodes {
			for _, tc := range []struct {
				group uint32
				node  string
				want  error
			}{{7, "", quorate.ErrNoGroup}, {1, "n9", quorate.ErrNotVoter}} {
				if _, err := asked.TransferLeadership(t.Context(), tc.group, tc.node); !errors.Is(err, tc.want) {
					t.Errorf("group %d to %q: %v, want %v", tc.group, tc.node, err, tc.want)
				}
			}
		}
		silent, asked := (leader+1)%3, nodes[(leader+2)%3]
		network.CutBoth(memnet.Blackhole, names[leader], names[silent])
		await(t, "the silence to be noticed", func() bool {
			_, err := nodes[leader].TransferLeadership(t.Context(), 1, names[silent])
			return errors.Is(err, quorate.ErrLagging)
		})
		if _, err := asked.TransferLeadership(t.Context(), 1, names[silent]); !errors.Is(err, quorate.ErrLagging) {
			t.Errorf("to a node that is cut off: %v", err)
		}
		network.Isolate(memnet.Blackhole, names[leader])
		await(t, "the leader to step down", func() bool {
			_, err := nodes[leader].TransferLeadership(t.Context(), 1, "")
			return errors.Is(err, quorate.ErrNoLeader)
		})
		network.Heal()
		for _, n := range nodes {
			if err := n.end(t); err != nil {
				t.Error(err)
			}
		}
	})
}
