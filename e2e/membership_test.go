package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// TestAnyOrderOfStartsMakesOneCluster starts nodes at random moments and restarts
// some while they form.
func TestAnyOrderOfStartsMakesOneCluster(t *testing.T) {
	rng := rand.New(rand.NewPCG(uint64(*seed), 3))
	rounds := 2
	if *full {
		rounds = 12
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			cfg := config()
			cfg.Proxied = round%2 == 1
			c := harness.New(t, cfg)
			for i := range 3 {
				c.Add(fmt.Sprintf("n%d", i+1))
			}
			for _, i := range rng.Perm(3) {
				c.Nodes()[i].Start()
				<-time.After(time.Duration(rng.IntN(1500)) * time.Millisecond) // part of the scenario
			}
			victim := c.Nodes()[rng.IntN(3)]
			if rng.IntN(2) == 0 {
				victim.Kill()
				victim.Start()
			}
			c.AwaitFormed()
		})
	}
}

func TestClusterComesBackUnderOtherAddresses(t *testing.T) {
	c := harness.Start(t, config(), 3)
	load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed})
	load.AwaitProgress(t, 200, patience)
	load.Stop()
	before, err := c.Node("n1").Status()
	require.NoError(t, err)
	c.Each(func(n *harness.Node) { n.Kill() })
	for _, n := range c.Nodes() {
		n.Readdress()
	}
	for _, n := range c.Nodes() {
		n.Start()
	}
	c.AwaitFormed()
	after, err := c.Node("n1").Status()
	require.NoError(t, err)
	require.Equal(t, before.ClusterID, after.ClusterID)
	require.Equal(t, before.ServerID, after.ServerID)
	checkNow(t, c, load)
}

func TestSingleNodeGrowsToThreeUnderLoad(t *testing.T) {
	c := harness.New(t, config())
	first := c.Add("n1")
	first.Alone = true
	first.Start()
	c.AwaitFormed()
	load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed, Nodes: []*harness.Node{first}})
	load.AwaitProgress(t, 200, patience)
	for _, name := range []string{"n2", "n3"} {
		c.Add(name).Start()
		c.AwaitFormed()
		load.AwaitProgress(t, 50, patience)
	}
	settle(t, c, load)
}

// watcher is a client that keeps the partition map.
func watcher(t *testing.T, n *harness.Node) *harness.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := n.Dial(ctx)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.NoError(t, client.Send(ctx, &protocol.PartitionMapRequest{}))
	return client
}

// mapped says what is wrong with a partition map that should list exactly nodes.
func mapped(m *protocol.PartitionMap, nodes ...string) error {
	if m == nil {
		return fmt.Errorf("no partition map")
	}
	want := make(map[string]bool)
	for _, n := range nodes {
		want[n] = true
	}
	for _, p := range m.Partitions {
		for _, holder := range append([]string{p.OwnerNodeID}, p.BackupNodeIDs...) {
			if !want[holder] {
				return fmt.Errorf("partition %d of map %d is held by %q", p.PartitionID, m.Version, holder)
			}
		}
		if len(p.BackupNodeIDs) != len(nodes)-1 {
			return fmt.Errorf("partition %d of map %d has %d backups", p.PartitionID, m.Version, len(p.BackupNodeIDs))
		}
	}
	for _, n := range m.Nodes {
		if n.Status == protocol.NodeActive && !want[n.NodeID] {
			return fmt.Errorf("map %d calls %s active", m.Version, n.NodeID)
		}
	}
	return nil
}

func TestStoppedNodeLeavesThePartitionMapAndReturns(t *testing.T) {
	c := harness.Start(t, config(), 3)
	watch := watcher(t, c.Node("n1"))
	harness.Eventually(t, patience, "the whole map", func() error { return mapped(watch.PartitionMap(), "n1", "n2", "n3") })
	victim := c.Node("n3")
	victim.Kill()
	took := harness.Eventually(t, patience, "the dead node to leave the map", func() error { return mapped(watch.PartitionMap(), "n1", "n2") })
	within(t, "leaving the partition map", took, 15*time.Second)
	victim.Start()
	took = harness.Eventually(t, patience, "the node to be back in the map", func() error {
		return mapped(watch.PartitionMap(), "n1", "n2", "n3")
	})
	within(t, "returning to the partition map", took, 20*time.Second)
	require.NoError(t, fmtProblems(watch))
}

func fmtProblems(c *harness.Client) error {
	if p := c.Problems(); len(p) > 0 {
		return fmt.Errorf("%v", p)
	}
	return nil
}

// TestWritesResumeAfterTheLeadersKill measures the longest gap of any group, through
// a node that lives.
func TestWritesResumeAfterTheLeadersKill(t *testing.T) {
	c := harness.Start(t, config(), 3)
	rounds := 1
	if *full {
		rounds = 5
	}
	for round := range rounds {
		victim := leaderOf(t, c, uint32(1+round))
		survivor := others(c, victim)[0]
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		client, err := survivor.Dial(ctx)
		require.NoError(t, err)
		batch := func(id string) *protocol.OpBatch {
			b := &protocol.OpBatch{WriteConcern: protocol.LevelReplicated}
			for group := uint32(1); group <= 6; group++ {
				op := harness.Put(fmt.Sprintf("%s%d", id, group), "gap", keyOfGroup(group), id, protocol.Timestamp{
					Millis: time.Now().UnixMilli(), NodeID: "gap",
				})
				b.Ops = append(b.Ops, op)
			}
			return b
		}
		require.True(t, client.Write(ctx, batch("1")).Accepted())
		victim.Kill()
		start := time.Now()
		for id := 2; !client.Write(ctx, batch(fmt.Sprint(id))).Accepted(); id++ {
			require.NoError(t, ctx.Err())
			select {
			case <-client.Gone():
				client, err = survivor.Dial(ctx)
				require.NoError(t, err)
			default:
			}
		}
		within(t, "the gap in the writes of all groups", time.Since(start), 3*time.Second)
		client.Close()
		cancel()
		victim.Start()
		c.AwaitFormed()
	}
}

// TestDrainedNodeLosesNothing stops nodes under load, one after the other.
func TestDrainedNodeLosesNothing(t *testing.T) {
	for _, backend := range []string{"embedded", "null"} {
		t.Run(backend, func(t *testing.T) {
			cfg := config()
			cfg.Backend = backend
			c := harness.Start(t, cfg, 3)
			load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed})
			for _, n := range c.Nodes() {
				if !*full && n.Name != "n1" {
					continue
				}
				load.AwaitProgress(t, 100, patience)
				idle := watcher(t, n)
				code, took := n.Stop()
				require.Zero(t, code)
				within(t, "drain", took, 30*time.Second)
				<-idle.Gone()
				require.Equal(t, int(protocol.CloseShutdown), idle.CloseCode())
				load.AwaitProgress(t, 100, patience)
				n.Start()
				c.AwaitFormed()
			}
			settle(t, c, load)
		})
	}
}
