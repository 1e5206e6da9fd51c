package e2e

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quorate/quorate/e2e/harness"
)

func TestEveryNodeAnswersWhatAnyNodeAcknowledged(t *testing.T) {
	for _, backend := range []string{"embedded", "null"} {
		t.Run(backend, func(t *testing.T) {
			cfg := config()
			cfg.Backend = backend
			c := harness.Start(t, cfg, 3)
			load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed})
			load.AwaitProgress(t, 500, patience)
			settle(t, c, load)
		})
	}
}

func TestKilledLeaderLosesNothing(t *testing.T) {
	c := harness.Start(t, config(), 3)
	load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed})
	for group := uint32(1); group <= 2; group++ {
		load.AwaitProgress(t, 200, patience)
		victim := leaderOf(t, c, group)
		victim.Kill()
		load.AwaitProgress(t, 200, patience)
		victim.Start()
		c.AwaitReady()
	}
	settle(t, c, load)
}

func TestKilledFollowerLosesNothing(t *testing.T) {
	onlyFull(t)
	c := harness.Start(t, config(), 3)
	load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed})
	rng := rand.New(rand.NewPCG(uint64(*seed), 1))
	for range 5 {
		victim := c.Nodes()[rng.IntN(3)]
		load.AwaitProgress(t, 100, patience)
		victim.Kill()
		load.AwaitProgress(t, 200, patience)
		victim.Start()
		c.AwaitReady()
	}
	settle(t, c, load)
}

func TestAllNodesKilledAtOnceLoseNothing(t *testing.T) {
	c := harness.Start(t, config(), 3)
	load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed})
	rounds := 1
	if *full {
		rounds = 5
	}
	for range rounds {
		load.AwaitProgress(t, 300, patience)
		c.Each(func(n *harness.Node) { n.Kill() })
		for _, n := range c.Nodes() {
			n.Start()
		}
		start := time.Now()
		c.AwaitReady()
		within(t, "readiness after a restart of all nodes", time.Since(start), 10*time.Second)
	}
	settle(t, c, load)
}

func TestPausedNodeLosesNothing(t *testing.T) {
	c := harness.Start(t, config(), 3)
	load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed})
	rounds := uint32(1)
	if *full {
		rounds = 6
	}
	for group := uint32(1); group <= rounds; group++ {
		load.AwaitProgress(t, 200, patience)
		victim := leaderOf(t, c, group)
		victim.Pause()
		// All clients may be connected to the victim, which answers nobody meanwhile.
		<-time.After(5 * time.Second)
		victim.Resume()
		load.AwaitProgress(t, 100, patience)
	}
	settle(t, c, load)
}

func TestWipedNodeComesBackAsAnother(t *testing.T) {
	c := harness.Start(t, config(), 3)
	load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed})
	load.AwaitProgress(t, 300, patience)
	victim := c.Node("n2")
	before, err := victim.Status()
	if err != nil {
		t.Fatal(err)
	}
	victim.Kill()
	victim.Wipe()
	load.AwaitProgress(t, 100, patience)
	victim.Start()
	settle(t, c, load)
	after, err := victim.Status()
	if err != nil {
		t.Fatal(err)
	}
	if after.ServerID == before.ServerID || after.ClusterID != before.ClusterID {
		t.Errorf("%s of %s came back as %s of %s", before.ServerID, before.ClusterID, after.ServerID, after.ClusterID)
	}
}
