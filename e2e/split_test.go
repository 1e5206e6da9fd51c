package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/e2e/fault"
	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/e2e/model"
	"github.com/quorate/quorate/protocol"
)

// others are the nodes of c besides n.
func others(c *harness.Cluster, n *harness.Node) []*harness.Node {
	return slices.DeleteFunc(slices.Clone(c.Nodes()), func(o *harness.Node) bool { return o == n })
}

// TestMinorityNeverAcknowledges cuts one node off, with clients on both sides. Those
// of the minority may get MEMORY from a leader that does not know yet, and nothing
// stronger.
func TestMinorityNeverAcknowledges(t *testing.T) {
	for name, key := range map[string]string{"plain": "", "authenticated": secret} {
		t.Run(name, func(t *testing.T) {
			if key != "" {
				onlyFull(t)
			}
			cfg := config()
			cfg.Proxied, cfg.Secret = true, key
			c := harness.Start(t, cfg, 3)
			minority := leaderOf(t, c, 1)
			inside := harness.StartLoad(c, harness.LoadConfig{
				Seed: *seed, Writers: 2, Pause: 50 * time.Millisecond, Nodes: others(c, minority),
			})
			inside.AwaitProgress(t, 100, patience)

			isolate(t, c, minority)
			outside := startWriters(t, minority, 4)
			took := inside.AwaitProgress(t, 300, patience)
			t.Logf("300 acknowledgements of the majority took %v", took)
			outside.awaitAnswers(t)

			c.Network.Heal()
			within(t, "readiness after healing", minority.AwaitReady(), 10*time.Second)
			settle(t, c, inside)
		})
	}
}

// lonelyWriters write through a node that is cut off, one key per partition group.
type lonelyWriters struct {
	results chan harness.Result
	clients []*harness.Client
	count   int
}

// startWriters sends operations of each durable level to several groups, with the
// longest timeout in the full run.
func startWriters(t *testing.T, n *harness.Node, perLevel int) *lonelyWriters {
	t.Helper()
	levels := []protocol.WriteConcern{
		protocol.LevelDefault, protocol.LevelApplied, protocol.LevelReplicated, protocol.LevelPersisted,
	}
	timeout := int64(5000)
	if *full {
		timeout = 0
	}
	w := &lonelyWriters{results: make(chan harness.Result, perLevel*len(levels))}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	for i := range perLevel {
		for j, level := range levels {
			c, err := n.Dial(ctx)
			require.NoError(t, err)
			t.Cleanup(c.Close)
			at := protocol.Timestamp{Millis: time.Now().UnixMilli(), Counter: int64(i*len(levels) + j), NodeID: "lonely"}
			op := harness.Put("1", "lonely", keyOfGroup(uint32(1+i%6)), "v", at)
			op.WriteConcern = level
			w.clients, w.count = append(w.clients, c), w.count+1
			go func() {
				w.results <- c.Write(ctx, &protocol.OpBatch{Ops: []protocol.ClientOp{op}, TimeoutMillis: timeout})
			}()
		}
	}
	return w
}

// awaitAnswers wants each operation to end without an acknowledgement, in time.
func (w *lonelyWriters) awaitAnswers(t *testing.T) {
	t.Helper()
	for range w.count {
		if r := <-w.results; r["1"].Kind == model.Accepted {
			t.Errorf("a minority acknowledged at %s", r["1"].Level)
		}
	}
	for _, c := range w.clients {
		report(t, c.Problems())
		for _, e := range c.Errors() {
			require.True(t, e.Code.Temporary(), "%d %s", e.Code, e.Message)
		}
		if len(c.Errors()) == 0 {
			<-c.Gone()
			require.Equal(t, int(protocol.CloseRetry), c.CloseCode())
		}
	}
}

// keyOfGroup returns a key that lives in a data group: group = 1 + partition mod 6.
func keyOfGroup(group uint32) string {
	for i := 0; ; i++ {
		key := "k" + string(rune('a'+i%26)) + string(rune('a'+i/26%26))
		if 1+protocol.Partition(key)%6 == group {
			return key
		}
	}
}

// TestOneWayAndBridgedLinksHeal cuts single directions and single links: a node that
// can speak and not hear, and two nodes that see each other through a third only.
func TestOneWayAndBridgedLinksHeal(t *testing.T) {
	onlyFull(t)
	cfg := config()
	cfg.Proxied = true
	c := harness.Start(t, cfg, 3)
	load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed})
	cut := fault.Conditions{Cut: true}
	for _, links := range [][]fault.Link{
		{{From: "n1", To: "n2"}, {From: "n1", To: "n3"}},
		{{From: "n2", To: "n1"}, {From: "n3", To: "n1"}},
		{{From: "n1", To: "n2"}, {From: "n2", To: "n1"}},
		{{From: "n2", To: "n3"}},
	} {
		load.AwaitProgress(t, 100, patience)
		for _, l := range links {
			require.NoError(t, c.Network.Set(l, cut))
		}
		took := load.AwaitProgress(t, 300, patience)
		c.Network.Heal()
		t.Logf("with %v cut, 300 acknowledgements took %v", links, took)
		c.AwaitReady()
	}
	settle(t, c, load)
}

// TestSlowAndFlappingLinksLoseNothing goes through delays, resets, throttles and short
// cuts at random.
func TestSlowAndFlappingLinksLoseNothing(t *testing.T) {
	onlyFull(t)
	cfg := config()
	cfg.Proxied = true
	c := harness.Start(t, cfg, 3)
	load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed})
	rng := rand.New(rand.NewPCG(uint64(*seed), 2))
	nodes := c.Network.Nodes()
	for range 30 {
		i := rng.IntN(3)
		l := fault.Link{From: nodes[i], To: nodes[(i+1+rng.IntN(2))%3]}
		conditions := []fault.Conditions{
			{Cut: true}, {Refuse: true}, {BytesPerSecond: 64 << 10},
			{Delay: time.Duration(rng.IntN(400)) * time.Millisecond, Jitter: 50 * time.Millisecond},
		}[rng.IntN(4)]
		require.NoError(t, c.Network.Set(l, conditions))
		if rng.IntN(2) == 0 {
			c.Network.Reset(l)
		}
		load.AwaitProgress(t, 20, patience)
		if rng.IntN(3) == 0 {
			c.Network.Heal()
		}
	}
	settle(t, c, load)
}

// TestSlowLinksElectRarely wants at most one election of a group in 30 s when every
// link takes 200 ms.
func TestSlowLinksElectRarely(t *testing.T) {
	onlyFull(t)
	cfg := config()
	cfg.Proxied = true
	c := harness.Start(t, cfg, 3)
	// Planned handovers raise terms too.
	harness.Eventually(t, patience, "leaders on all nodes", func() error { return spread(c) })
	load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed})
	for _, n := range c.Network.Nodes() {
		require.NoError(t, c.Network.Isolate(n, fault.Conditions{Delay: 200 * time.Millisecond, Jitter: 20 * time.Millisecond}))
	}
	before := terms(t, c)
	window := time.NewTimer(30 * time.Second)
	load.AwaitProgress(t, 50, patience)
	<-window.C
	for group, term := range terms(t, c) {
		if term > before[group]+1 {
			t.Errorf("group %d went from term %d to %d", group, before[group], term)
		}
	}
	settle(t, c, load)
}

// spread says which node leads fewer than two groups.
func spread(c *harness.Cluster) error {
	all, err := c.Statuses()
	if err != nil {
		return err
	}
	for _, s := range all {
		if n := s.Leading(); n < 2 {
			return fmt.Errorf("%s leads %d groups", s.NodeID, n)
		}
	}
	return nil
}

// terms is the greatest term of each group.
func terms(t *testing.T, c *harness.Cluster) map[uint32]uint64 {
	t.Helper()
	all, err := c.Statuses()
	require.NoError(t, err)
	greatest := make(map[uint32]uint64)
	for _, s := range all {
		for _, g := range s.Groups {
			greatest[g.Group] = max(greatest[g.Group], g.Term)
		}
	}
	return greatest
}
