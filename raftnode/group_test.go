package raftnode

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorate/quorate/raftnode/mux/memnet"
)

func TestThreeNodesElectALeaderAndReplicate(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		for i := range 50 {
			leader.mustWrite(fmt.Sprint("k", i), fmt.Sprint("v", i))
		}
		c.converge()
		for _, n := range c.nodes {
			if got := n.read("k49"); got != "v49" {
				t.Errorf("%s has %q under k49", n.name, got)
			}
			id, term := n.group().Leader()
			if id != leader.id || term != leader.group().Status().Term {
				t.Errorf("%s sees leader %s of term %d", n.name, id, term)
			}
		}
		for _, n := range c.others(leader) {
			if _, err := n.write(time.Second, "k", "v"); !isNotLeader(err) {
				t.Errorf("a follower answered %v", err)
			}
		}
		c.noFatal()
	})
}

func TestAcknowledgedWritesSurviveThePowerLossOfAllNodes(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		for round := range 4 {
			leader := c.leader()
			for i := range 30 {
				leader.mustWrite(fmt.Sprintf("r%d-%d", round, i), "v")
			}
			for _, n := range c.nodes {
				n.kill()
			}
			for _, n := range c.nodes {
				n.restart()
			}
		}
		c.leader()
		c.converge()
		for _, n := range c.nodes {
			for round := range 4 {
				for i := range 30 {
					if n.read(fmt.Sprintf("r%d-%d", round, i)) != "v" {
						t.Fatalf("%s lost write %d of round %d", n.name, i, round)
					}
				}
			}
		}
		c.noFatal()
	})
}

func TestIsolatedLeaderStepsDownAndTheOthersGoOn(t *testing.T) {
	for _, how := range []memnet.Cut{memnet.Blackhole, memnet.Reset} {
		t.Run(fmt.Sprint("cut ", how), func(t *testing.T) {
			simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
				c.startAll()
				old := c.leader()
				old.mustWrite("k", "before")
				c.net.Isolate(how, old.name)
				start := time.Now()
				next := c.leader(c.others(old)...)
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("a new leader took %s", took)
				}
				next.mustWrite("k", "after")
				c.net.Heal()
				c.converge()
				if got := old.read("k"); got != "after" {
					t.Errorf("old leader has %q", got)
				}
				c.noFatal()
			})
		})
	}
}
