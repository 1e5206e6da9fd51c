package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode/mux"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// three runs a test on a formed cluster of three nodes.
func three(t *testing.T, seed uint64, test func(t *testing.T, c *cluster)) {
	t.Helper()
	simulate(t, 3, seed, func(t *testing.T, c *cluster) {
		c.startAll()
		c.formed(30 * time.Second)
		test(t, c)
	})
}

func TestOneNodeGrowsToFiveWhileItIsWritten(t *testing.T) {
	randomised(t, func(t *testing.T, seed uint64) {
		simulate(t, 1, seed, func(t *testing.T, c *cluster) {
			c.nodes[0].seeds = []string{}
			c.nodes[0].start()
			c.formed(10 * time.Second)
			load := c.startWriting()
			for i := 2; i <= 5; i++ {
				n := c.add(fmt.Sprintf("n%d", i))
				n.start()
				c.formed(60 * time.Second)
			}
			load.stopAndCheck()
			// Replicas that moved away are gone from where they were.
			c.eventually(20*time.Second, "every node runs only what the table gives it", func() bool {
				for _, n := range c.nodes {
					held := 0
					for _, p := range n.agent.State().Table.Groups {
						held += btoi(slices.Contains(p.Voters, string(n.id)))
					}
					if len(n.host.Groups()) != 1+held || held == testGroups && n != c.nodes[0] {
						return false
					}
				}
				return true
			})
		})
	})
}

func TestAWipedNodeComesBackAsANewServer(t *testing.T) {
	randomised(t, func(t *testing.T, seed uint64) {
		three(t, seed, func(t *testing.T, c *cluster) {
			load := c.startWriting()
			n := c.nodes[c.rng.IntN(3)]
			old := n.id
			n.kill()
			n.wipe()
			n.start()
			c.eventually(60*time.Second, "the new server is in place", func() bool {
				return n.agent.Phase() == PhaseMember && n.agent.CaughtUp() && c.inPlace(c.up())
			})
			load.stopAndCheck()
			if n.id == old {
				t.Fatal("the wiped node kept its server id")
			}
			for _, other := range c.nodes {
				m, _ := other.agent.State().Member(string(old))
				if m.Status != system.StatusRemoved {
					t.Fatalf("%s still has %s as %s", other.name, old, m.Status)
				}
				for _, g := range other.host.Groups() {
					if s := g.Status(); slices.Contains(s.Voters, old) || slices.Contains(s.Nonvoters, old) {
						t.Fatalf("%s still has %s in group %d", other.name, old, s.Group)
					}
				}
			}
		})
	})
}

func TestAnOldDiskOfAWipedNodeIsRefused(t *testing.T) {
	three(t, 1, func(t *testing.T, c *cluster) {
		n := c.nodes[2]
		n.kill()
		fs, store := n.fs, n.store
		n.wipe()
		n.start()
		c.formed(60 * time.Second)
		n.kill()
		// By then nobody tries any more to tell the old server that it was removed.
		time.Sleep(30 * time.Second)
		n.fs, n.store = fs, store
		n.start()
		asError[*RefusedError](t, n.wait(20*time.Second))
	})
}

func TestASecondNodeWithTheSameIDGivesUp(t *testing.T) {
	three(t, 1, func(t *testing.T, c *cluster) {
		twin := c.add("n2")
		twin.addr = "n8:7000"
		twin.start()
		begun := time.Now()
		dup := asError[*DuplicateError](t, twin.wait(30*time.Second))
		if dup.Addr != "n8:7000" || dup.OtherAddr != "n2:7000" || dup.NodeID != "n2" {
			t.Errorf("error does not name the two: %v", dup)
		}
		if took := time.Since(begun); took < 15*time.Second {
			t.Errorf("gave up after %s already", took)
		}
		twin.kill()
		c.formed(5 * time.Second)
	})
}

func TestASecondProcessWithACopiedDiskGivesUp(t *testing.T) {
	three(t, 1, func(t *testing.T, c *cluster) {
		n := c.nodes[1]
		twin := c.add("n2")
		twin.addr = "n8:7000"
		identity, err := n.store.Meta(identityDocument)
		c.must(err)
		c.must(twin.store.SetMeta(identityDocument, identity))
		begun := time.Now()
		twin.start()
		asError[*DuplicateError](t, twin.wait(40*time.Second))
		if took := time.Since(begun); took < 15*time.Second {
			t.Errorf("gave up after %s already", took)
		}
		if len(twin.host.Groups()) > 0 {
			t.Error("it started replicas under the id of a running node")
		}
		twin.kill()
		c.formed(5 * time.Second)
	})
}

func TestAllNodesMoveToNewAddresses(t *testing.T) {
	randomised(t, func(t *testing.T, seed uint64) {
		three(t, seed, func(t *testing.T, c *cluster) {
			id := c.nodes[0].agent.Status().ClusterID
			for _, n := range c.nodes {
				n.kill()
			}
			c.seeds = nil
			for i, n := range c.nodes {
				n.addr = fmt.Sprintf("m%d:7000", i+1)
				if i < 2 {
					c.seeds = append(c.seeds, n.addr)
				}
			}
			c.startAll()
			c.formed(60 * time.Second)
			if now := c.nodes[0].agent.Status().ClusterID; now != id {
				t.Fatalf("cluster id changed from %s to %s", id, now)
			}
			c.eventually(10*time.Second, "the documents have the new addresses", func() bool {
				for _, m := range c.nodes[0].agent.State().Members {
					if m.PeerAddr[0] != 'm' {
						return false
					}
				}
				return true
			})
		})
	})
}

func TestAMovedNodeIsFoundWithoutSeeds(t *testing.T) {
	three(t, 1, func(t *testing.T, c *cluster) {
		n := c.nodes[1]
		n.kill()
		n.addr, n.seeds = "m2:7000", []string{}
		n.start()
		c.formed(30 * time.Second)
	})
}

func TestAStoppedNodeIsCalledFailedAndComesBack(t *testing.T) {
	three(t, 2, func(t *testing.T, c *cluster) {
		for _, n := range c.nodes {
			others := slices.DeleteFunc(slices.Clone(c.nodes), func(o *node) bool { return o == n })
			n.kill()
			took := c.eventually(15*time.Second, "failed in the documents", func() bool {
				return others[0].member(n.name).Status == system.StatusFailed && others[1].member(n.name).Status == system.StatusFailed
			})
			t.Logf("%s failed after %s", n.name, took)
			n.start()
			t.Logf("back after %s", c.formed(20*time.Second))
		}
	})
}

func TestTheTableFollowsANewLeader(t *testing.T) {
	three(t, 3, func(t *testing.T, c *cluster) {
		time.Sleep(20 * time.Second)
		c.formed(time.Second)
		versions := c.nodes[0].agent.State().Table.Version
		time.Sleep(20 * time.Second)
		if now := c.nodes[0].agent.State().Table.Version; now != versions {
			t.Fatalf("the table went from version %d to %d while nothing happened", versions, now)
		}
		victim := c.byID(c.nodes[0].agent.State().Table.Groups[0].Leader)
		victim.kill()
		rest := c.up()
		elected := func() *node {
			for _, n := range rest {
				if g, ok := n.host.Group(1); ok && g.IsLeader() {
					return n
				}
			}
			return nil
		}
		c.eventually(5*time.Second, "a new leader", func() bool { return elected() != nil && c.systemLeader() != nil })
		took := c.eventually(2*time.Second, "the table names it", func() bool {
			return rest[0].agent.State().Table.Groups[0].Leader == string(elected().id)
		})
		t.Logf("the table follows after %s", took)
	})
}

func TestLeadershipsSpreadAgainAfterARestart(t *testing.T) {
	three(t, 4, func(t *testing.T, c *cluster) {
		spread := func() bool {
			state := c.nodes[0].agent.State()
			for i, p := range state.Table.Groups {
				if p.Leader != p.Preferred || !c.byID(p.Leader).leads(uint32(i)+1, p.Voters) {
					return false
				}
			}
			return true
		}
		c.eventually(60*time.Second, "leaders are the preferred ones", spread)
		n := c.nodes[1]
		n.kill()
		time.Sleep(20 * time.Second)
		n.start()
		c.formed(20 * time.Second)
		c.eventually(60*time.Second, "leaders are the preferred ones again", spread)
	})
}

func TestANodeLeavesForGood(t *testing.T) {
	randomised(t, func(t *testing.T, seed uint64) {
		simulate(t, 4, seed, func(t *testing.T, c *cluster) {
			c.startAll()
			c.formed(60 * time.Second)
			load := c.startWriting()
			for len(c.up()) > 1 {
				up := c.up()
				n := up[c.rng.IntN(len(up))]
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				if err := n.agent.Leave(ctx); err != nil {
					t.Fatalf("%s of %d: %v\n%s", n.name, len(up), err, c.describe())
				}
				cancel()
				if err := n.wait(20 * time.Second); err != nil {
					t.Fatalf("Run of a node that left: %v", err)
				}
				n.kill()
				c.formed(30 * time.Second)
			}
			load.stopAndCheck()
			if err := c.up()[0].agent.Leave(context.Background()); !errors.Is(err, ErrLastMember) {
				t.Fatalf("the last member left: %v", err)
			}
		})
	})
}

func TestANodeThatLeftIsRefused(t *testing.T) {
	three(t, 5, func(t *testing.T, c *cluster) {
		n := c.nodes[0]
		c.must(n.agent.Leave(context.Background()))
		c.must(n.wait(20 * time.Second))
		n.kill()
		n.start()
		asError[*RefusedError](t, n.wait(20*time.Second))
	})
}

// TestADeadNodeIsExpelled takes a dead node out through another one, while the cluster of
// three or four is written, and starts it again.
func TestADeadNodeIsExpelled(t *testing.T) {
	randomised(t, func(t *testing.T, seed uint64) {
		simulate(t, 3+int(seed%2), seed, func(t *testing.T, c *cluster) {
			c.startAll()
			c.formed(60 * time.Second)
			load := c.startWriting()
			dead := c.nodes[c.rng.IntN(len(c.nodes))]
			asker := c.up()[(slices.Index(c.up(), dead)+1)%len(c.nodes)]
			if err := asker.agent.Expel(context.Background(), dead.id); !errors.Is(err, ErrAlive) {
				t.Fatalf("a live node was expelled: %v", err)
			}
			if err := asker.agent.Expel(context.Background(), "nobody#1"); !errors.Is(err, ErrNotAMember) {
				t.Fatalf("a stranger was expelled: %v", err)
			}
			dead.kill()
			status := func() system.Status {
				m, _ := asker.agent.State().Member(string(dead.id))
				return m.Status
			}
			c.eventually(time.Minute, "the node is called failed", func() bool { return status() == system.StatusFailed })
			c.must(asker.agent.Expel(context.Background(), dead.id))
			c.must(asker.agent.Expel(context.Background(), dead.id)) // which may be a repeat
			c.eventually(time.Minute, "the node is removed", func() bool { return status() == system.StatusRemoved })
			c.formed(30 * time.Second)
			load.stopAndCheck()
			dead.start()
			asError[*RefusedError](t, dead.wait(20*time.Second))
		})
	})
}

func TestWithoutAQuorumNobodyIsExpelled(t *testing.T) {
	three(t, 8, func(t *testing.T, c *cluster) {
		c.nodes[1].kill()
		c.nodes[2].kill()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.nodes[0].agent.Expel(ctx, c.nodes[1].id); err == nil {
			t.Fatal("a member was expelled without a quorum")
		}
		if m, _ := c.nodes[0].agent.State().Member(string(c.nodes[1].id)); m.Status == system.StatusLeaving {
			t.Fatal("the documents changed without a quorum")
		}
	})
}

func TestADeadNodeIsReplacedByASpareOne(t *testing.T) {
	simulate(t, 4, 6, func(t *testing.T, c *cluster) {
		c.tweak = func(cfg *Config) { cfg.Timing.ReplaceDeadAfter = 40 * time.Second }
		c.startAll()
		c.formed(60 * time.Second)
		n := c.nodes[0]
		id := string(n.id)
		n.kill()
		holds := func() bool {
			for _, p := range c.up()[0].agent.State().Table.Groups {
				if slices.Contains(p.Voters, id) {
					return true
				}
			}
			return false
		}
		time.Sleep(30 * time.Second)
		if !holds() {
			t.Fatal("replaced too early")
		}
		c.eventually(30*time.Second, "its replicas are elsewhere", func() bool { return !holds() && c.inPlace(c.up()) })
		n.start()
		c.formed(60 * time.Second)
		c.nodes[1].kill()
		c.nodes[2].kill()
		time.Sleep(time.Minute)
		c.nodes[1].start()
		c.nodes[2].start()
		c.formed(60 * time.Second)
	})
}

func TestAWrongSecretIsRefused(t *testing.T) {
	simulate(t, 3, 7, func(t *testing.T, c *cluster) {
		for i, n := range c.nodes {
			n.secret = "the secret of the cluster, long enough"
			if i < 2 {
				n.start()
			}
		}
		c.formed(30 * time.Second)
		stranger := c.nodes[2]
		stranger.secret = "another secret that is long enough too"
		stranger.start()
		asError[*RefusedError](t, stranger.wait(time.Minute))
		stranger.kill()
	})
}

func TestAMemberOfAnotherClusterIsRefused(t *testing.T) {
	three(t, 8, func(t *testing.T, c *cluster) {
		other := c.add("n4")
		other.seeds = []string{}
		other.start()
		c.eventually(10*time.Second, "it founds its own", func() bool { return other.agent.Phase() == PhaseMember })
		first := other.agent.Status().ClusterID
		other.kill()
		other.seeds = c.seeds
		other.start()
		time.Sleep(35 * time.Second)
		if now := other.agent.Status().ClusterID; now != first {
			t.Fatalf("a member of %s went over to %s", first, now)
		}
		other.kill()
		c.nodes = c.nodes[:3]
		c.formed(5 * time.Second)
	})
}

func TestAMinorityChangesNothing(t *testing.T) {
	three(t, 9, func(t *testing.T, c *cluster) {
		lonely := c.systemLeader()
		c.net.Isolate(memnet.Blackhole, lonely.machine())
		time.Sleep(30 * time.Second)
		for _, m := range lonely.agent.State().Members {
			if m.Status == system.StatusFailed {
				t.Fatalf("a leader without a quorum called %s failed", m.ID)
			}
		}
		c.net.Heal()
		c.formed(30 * time.Second)
	})
}

func TestMalformedMessagesAreRefusedAndChangeNothing(t *testing.T) {
	three(t, 10, func(t *testing.T, c *cluster) {
		n := c.nodes[0]
		before := n.agent.State()
		bodies := [][]byte{nil, {0xff}, []byte("null"), []byte("[]"), []byte("{"), []byte(`{"id":7}`), []byte(`{"id":"n9#1"}`),
			bytes.Repeat([]byte("["), maxMessage), bytes.Repeat([]byte("x"), maxMessage+1)}
		for method := methodPrepare; method <= methodLeave; method++ {
			for _, body := range bodies {
				_, err := c.nodes[1].mux.Call(context.Background(), n.id, method, body)
				var remote *mux.RemoteError
				if !errors.As(err, &remote) || remote.Code == mux.CodeInternal {
					t.Errorf("method %d, body %.20q: %v", method, body, err)
				}
			}
		}
		c.formed(time.Second)
		if n.agent.State() != before {
			t.Error("the documents changed")
		}
	})
}

func TestNodesWithoutADiskAreReplacedOneByOne(t *testing.T) {
	simulate(t, 3, 11, func(t *testing.T, c *cluster) {
		for _, n := range c.nodes {
			n.null = true
		}
		c.startAll()
		c.formed(30 * time.Second)
		load := c.startWriting()
		for _, n := range c.nodes {
			n.kill()
			n.start()
			c.formed(30 * time.Second)
		}
		load.stopAndCheck()
	})
}
