package raftnode

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftnode/mux/memnet"
)

func TestGroupGrowsFromOneToThreeAndShrinks(t *testing.T) {
	simulate(t, 1, testSeed(t), func(t *testing.T, c *cluster) {
		ctx := context.Background()
		c.startAll()
		first := c.leader()
		last := first.fill("one", 20)
		for _, name := range []string{"n2", "n3"} {
			n := c.addNode(name)
			n.boot()
			n.startGroup(nil)
			for _, other := range c.nodes {
				other.mux.SetPeerAddr(n.id, n.addr)
			}
			if err := first.group().AddVoter(ctx, n.id); !errors.Is(err, ErrNotCaughtUp) {
				t.Fatalf("vote for a stranger: %v", err)
			}
			c.must(first.group().AddNonvoter(ctx, n.id))
			c.must(first.group().AddNonvoter(ctx, n.id)) // a second time changes nothing
			c.must(n.group().WaitApplied(ctx, last))
			if n.group().Votes() {
				t.Error("a replica that was not promoted votes")
			}
			c.eventually(5*time.Second, "promotion", func() bool {
				err := first.group().AddVoter(ctx, n.id)
				if err != nil && !errors.Is(err, ErrNotCaughtUp) && !errors.Is(err, ErrConflict) {
					t.Fatal(err)
				}
				return err == nil
			})
		}
		c.converge()
		for _, n := range c.nodes {
			if !n.group().Votes() {
				t.Errorf("%s does not know that it votes", n.id)
			}
		}
		status := c.nodes[2].group().Status()
		if len(status.Voters) != 3 || len(status.Nonvoters) != 0 {
			t.Errorf("members %v, %v", status.Voters, status.Nonvoters)
		}

		c.must(first.group().RemoveServer(ctx, c.nodes[1].id))
		c.must(first.group().RemoveServer(ctx, c.nodes[1].id))
		c.must(c.nodes[1].host.Stop(testGroup, true))
		if got := c.nodes[1].log.Groups(); slices.Contains(got, testGroup) {
			t.Errorf("log still has groups %v", got)
		}
		c.must(first.group().RemoveServer(ctx, c.nodes[2].id))
		if err := first.group().RemoveServer(ctx, first.id); !errors.Is(err, ErrLastVoter) {
			t.Errorf("removal of the last voter: %v", err)
		}
		first.mustWrite("k", "alone")
		c.noFatal()
	})
}

func TestLeaderRemovesItself(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		old := c.leader()
		c.must(old.group().RemoveServer(context.Background(), old.id))
		next := c.leader(c.others(old)...)
		next.mustWrite("k", "v")
		if old.group().IsLeader() || slices.Contains(next.group().Status().Voters, old.id) {
			t.Error("the removed server still takes part")
		}
		c.noFatal()
	})
}

func TestChangesNeedTheLeader(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		ctx := context.Background()
		c.startAll()
		leader := c.leader()
		follower := c.others(leader)[0]
		for name, err := range map[string]error{
			"add non-voter": follower.group().AddNonvoter(ctx, "x#1"),
			"add voter":     follower.group().AddVoter(ctx, "x#1"),
			"remove":        follower.group().RemoveServer(ctx, leader.id),
			"transfer":      follower.group().TransferLeadership(ctx, follower.id),
		} {
			if !isNotLeader(err) {
				t.Errorf("%s on a follower: %v", name, err)
			}
		}
		// Without a quorum the outcome is unknown.
		c.net.Isolate(memnet.Blackhole, leader.name)
		if err := leader.group().AddNonvoter(ctx, "x#1"); !errors.Is(err, ErrUnknown) {
			t.Errorf("change without a quorum: %v", err)
		}
	})
}

// A change that was decided on an outdated configuration is refused.
func TestChangeIsBoundToItsConfiguration(t *testing.T) {
	simulate(t, 1, testSeed(t), func(t *testing.T, c *cluster) {
		ctx := context.Background()
		c.startAll()
		n := c.leader()
		stale := *n.group().applier.current.Load()
		c.must(n.group().AddNonvoter(ctx, "x#1"))
		n.group().applier.current.Store(&stale)
		if err := n.group().AddNonvoter(ctx, "y#1"); !errors.Is(err, ErrConflict) {
			t.Errorf("change of an outdated configuration: %v", err)
		}
	})
}

func TestLeadershipMovesToTheChosenVoter(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		ctx := context.Background()
		c.startAll()
		for range 5 {
			old := c.leader()
			old.mustWrite("k", old.name)
			to := c.others(old)[0]
			c.eventually(5*time.Second, "a follower that is caught up", func() bool {
				return old.group().caughtUp(to.id, 0)
			})
			start := time.Now()
			c.must(old.group().TransferLeadership(ctx, to.id))
			if now := c.leader(); now != to {
				t.Fatalf("%s leads, not %s", now.name, to.name)
			}
			if took := time.Since(start); took > 300*time.Millisecond {
				t.Errorf("transfer took %s", took)
			}
		}
		c.noFatal()
	})
}

func TestTransferIsRefusedUnlessTheTargetCanTakeOver(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		ctx := context.Background()
		c.startAll()
		leader := c.leader()
		group := leader.group()
		silent := c.others(leader)[0]
		c.net.CutBoth(memnet.Blackhole, leader.name, silent.name)
		time.Sleep(time.Second) // virtual: its last answer is too old now
		if err := group.TransferLeadership(ctx, silent.id); !errors.Is(err, ErrNotCaughtUp) {
			t.Errorf("transfer to a silent voter: %v", err)
		}
		for _, id := range []ServerID{leader.id, "x#1"} {
			if err := group.TransferLeadership(ctx, id); !errors.Is(err, ErrNotVoter) {
				t.Errorf("transfer to %s: %v", id, err)
			}
		}
		// At most one attempt in a term.
		group.transferredTerm.Store(group.Status().Term)
		if err := group.TransferLeadership(ctx, c.others(leader)[1].id); !errors.Is(err, ErrTransferred) {
			t.Errorf("second attempt: %v", err)
		}
		leader.mustWrite("k", "still leading")
	})
}

func TestDrainHandsEveryLeadershipOver(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		old := c.leader()
		var waiting []Proposal
		for range 100 {
			p, err := old.host.Propose(testGroup, []Command{put("k", "v")})
			c.must(err)
			waiting = append(waiting, p)
		}
		c.must(old.host.Drain(context.Background()))
		for _, p := range waiting {
			if _, err := p.Wait(context.Background()); err != nil {
				t.Fatalf("a proposal accepted before the drain: %v", err)
			}
		}
		if _, err := old.host.Propose(testGroup, []Command{put("k", "v")}); !errors.Is(err, ErrBusy) {
			t.Errorf("proposal to a draining node: %v", err)
		}
		if s := old.group().Status(); s.Role == raft.Leader {
			t.Error("still leads")
		}
		c.leader(c.others(old)...).mustWrite("k", "next")
		old.shutdown()
	})
}

func TestDrainOfALoneNodeHasNobodyToHandOverTo(t *testing.T) {
	simulate(t, 1, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		n := c.leader()
		n.mustWrite("k", "v")
		c.must(n.host.Drain(context.Background()))
		n.shutdown()
		n.restart()
		c.leader()
		if n.read("k") != "v" {
			t.Error("lost the write")
		}
	})
}
