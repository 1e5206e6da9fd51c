package membership

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/raftnode/mux/memnet"
)

func TestOneNodeWithoutSeedsFoundsAtOnce(t *testing.T) {
	simulate(t, 1, 1, func(t *testing.T, c *cluster) {
		n := c.nodes[0]
		n.seeds = []string{}
		n.start()
		c.formed(10 * time.Second)
		first := n.agent.Status().ClusterID
		n.kill()
		n.start()
		c.formed(10 * time.Second)
		if again := n.agent.Status().ClusterID; again != first {
			t.Fatalf("after a restart the cluster is %s, was %s", again, first)
		}
	})
}

func TestNodesStartedInAnyOrderFormOneCluster(t *testing.T) {
	lists := map[string]func(c *cluster, i int) []string{
		"identical lists": func(c *cluster, _ int) []string { return c.seeds },
		"mutual lists": func(c *cluster, i int) []string {
			var others []string
			for j, s := range c.seeds {
				if j != i {
					others = append(others, s)
				}
			}
			return others
		},
		"one seed for all":      func(c *cluster, _ int) []string { return c.seeds[:1] },
		"first without seeds":   func(c *cluster, i int) []string { return c.seeds[:min(i, 1)] },
		"each names the next":   func(c *cluster, i int) []string { return []string{c.seeds[(i+1)%len(c.seeds)]} },
		"two seeds for all":     func(c *cluster, _ int) []string { return c.seeds[:2] },
		"a seed that is nobody": func(c *cluster, _ int) []string { return append([]string{"n9:7000"}, c.seeds...) },
	}
	for name, list := range lists {
		for _, null := range []bool{false, true} {
			if null && strings.Contains(name, "nobody") {
				continue // Nodes without a disk wait for everybody.
			}
			t.Run(fmt.Sprintf("%s, null %v", name, null), func(t *testing.T) {
				randomised(t, func(t *testing.T, seed uint64) {
					simulate(t, 3, seed, func(t *testing.T, c *cluster) {
						for i, n := range c.nodes {
							n.null, n.seeds = null, list(c, i)
						}
						c.startAll()
						c.formed(30 * time.Second)
					})
				})
			})
		}
	}
}

func TestAMajorityOfTheSeedsIsEnough(t *testing.T) {
	simulate(t, 3, 1, func(t *testing.T, c *cluster) {
		c.nodes[0].start()
		c.nodes[2].start()
		c.formed(30 * time.Second)
		c.nodes[1].start()
		c.formed(30 * time.Second)
	})
}

func TestFewerThanAMajorityFormNothing(t *testing.T) {
	simulate(t, 3, 1, func(t *testing.T, c *cluster) {
		n := c.nodes[1]
		n.start()
		time.Sleep(5 * time.Minute)
		if phase := n.agent.Phase(); phase != PhaseFresh || n.agent.State() != nil {
			t.Fatalf("a single node of three is %s", phase)
		}
	})
}

func TestNodesWithoutADiskWaitForAllSeeds(t *testing.T) {
	simulate(t, 3, 1, func(t *testing.T, c *cluster) {
		for _, n := range c.nodes {
			n.null = true
		}
		c.nodes[0].start()
		c.nodes[1].start()
		time.Sleep(5 * time.Minute)
		if c.nodes[0].agent.State() != nil || c.nodes[1].agent.State() != nil {
			t.Fatal("nodes that forget their promises formed a cluster without all")
		}
		c.nodes[2].start()
		c.formed(30 * time.Second)
	})
}

func TestCrashesWhileFormingLeaveAtMostOneCluster(t *testing.T) {
	randomised(t, func(t *testing.T, seed uint64) {
		simulate(t, 3+int(seed%3), seed, func(t *testing.T, c *cluster) {
			c.net.SetLinks(memnet.Link{Latency: 5 * time.Millisecond, Jitter: 50 * time.Millisecond})
			for range 30 {
				n := c.nodes[c.rng.IntN(len(c.nodes))]
				if n.running {
					n.kill()
				} else {
					n.start()
				}
				time.Sleep(time.Duration(c.rng.IntN(600)) * time.Millisecond)
				c.oneCluster()
			}
			for _, n := range c.nodes {
				if !n.running {
					n.start()
				}
			}
			c.formed(60 * time.Second)
		})
	})
}

func TestCutsWhileFormingLeaveAtMostOneCluster(t *testing.T) {
	randomised(t, func(t *testing.T, seed uint64) {
		simulate(t, 5, seed, func(t *testing.T, c *cluster) {
			// Two of the five are no seeds of anybody: with them the minority of the
			// seeds would be a majority of the nodes.
			c.seeds = c.seeds[:3]
			c.startAll()
			for range 20 {
				a, b := c.nodes[c.rng.IntN(5)], c.nodes[c.rng.IntN(5)]
				if c.rng.IntN(3) > 0 {
					c.net.Cut(memnet.Blackhole, a.machine(), b.machine())
				} else {
					c.net.Heal()
				}
				time.Sleep(time.Duration(c.rng.IntN(800)) * time.Millisecond)
				c.oneCluster()
			}
			c.net.Heal()
			c.formed(90 * time.Second)
		})
	})
}

func TestTwoNodesWithOneAddressFormNothing(t *testing.T) {
	simulate(t, 2, 1, func(t *testing.T, c *cluster) {
		// Both advertise an address that leads each to itself.
		for _, n := range c.nodes {
			n.advertise = "here:7000"
		}
		c.startAll()
		time.Sleep(2 * time.Minute)
		for _, n := range c.nodes {
			if n.agent.State() != nil {
				t.Fatalf("%s formed a cluster:\n%s", n.name, c.describe())
			}
		}
	})
}

func TestAFounderThatDiedIsWaitedFor(t *testing.T) {
	simulate(t, 3, 1, func(t *testing.T, c *cluster) {
		for _, n := range c.nodes {
			n.start()
		}
		c.eventually(10*time.Second, "a founder is chosen", func() bool { return c.nodes[0].agent.Phase() == PhaseForming })
		c.nodes[0].kill()
		time.Sleep(time.Minute)
		for _, n := range c.nodes[1:] {
			if n.agent.State() != nil {
				t.Fatalf("%s is in a cluster without its founder", n.name)
			}
		}
		c.nodes[0].start()
		c.formed(30 * time.Second)
	})
}
