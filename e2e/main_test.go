package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/e2e/fault"
	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/e2e/model"
)

var (
	full   = flag.Bool("e2e.full", false, "run the full set, and assert the stated time limits")
	server = flag.String("e2e.binary", "", "server to test; empty builds one")
	seed   = flag.Int64("e2e.seed", 0, "seed of the random choices; 0 takes one from the clock")
)

// patience bounds waits for what should take seconds, on a machine that may be very
// busy.
const patience = 90 * time.Second

// secret is the JWT_SECRET of clusters with authentication.
const secret = "a-secret-of-more-than-thirty-two-bytes"

func TestMain(m *testing.M) {
	flag.Parse()
	if *seed == 0 {
		*seed = time.Now().UnixNano()
	}
	fmt.Printf("e2e.seed %d\n", *seed)
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if *server != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "quorate-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if *server, err = harness.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func config() harness.Config { return harness.Config{Binary: *server} }

// onlyFull skips what the short run has no time for.
func onlyFull(t *testing.T) {
	t.Helper()
	if !*full {
		t.Skip("only with -e2e.full")
	}
}

// within asserts a stated limit in the full run and logs the time in every run: the
// short one shares the machine with other suites.
func within(t *testing.T, what string, took, limit time.Duration) {
	t.Helper()
	t.Logf("%s took %v, limit %v", what, took.Round(10*time.Millisecond), limit)
	if *full && took > limit {
		t.Errorf("%s took %v, limit %v", what, took, limit)
	}
}

// settle ends the faults and the load, and checks everything that was recorded
// against every node.
func settle(t *testing.T, c *harness.Cluster, load *harness.Load) {
	t.Helper()
	if c.Network != nil {
		c.Network.Heal()
	}
	c.AwaitFormed()
	load.AwaitProgress(t, 20, patience)
	load.Stop()
	checkNow(t, c, load)
}

// checkNow checks a load that has ended against every running node.
func checkNow(t *testing.T, c *harness.Cluster, load *harness.Load) {
	t.Helper()
	states := make(map[string]model.State)
	c.Still(func() {
		for _, n := range c.Running() {
			states[n.Name] = readState(t, n, load.MapNames()...)
		}
	})
	sent, acknowledged, unknown := load.History.Count()
	t.Logf("%d writes sent, %d acknowledged, %d unknown", sent, acknowledged, unknown)
	report(t, model.Check(load.History, states))
}

func readState(t *testing.T, n *harness.Node, maps ...string) model.State {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	state, err := n.ReadState(ctx, maps...)
	require.NoError(t, err)
	return state
}

// report fails the test with the first problems.
func report(t *testing.T, problems []string) {
	t.Helper()
	for i, p := range problems {
		if i == 20 {
			t.Errorf("and %d more", len(problems)-i)
			return
		}
		t.Error(p)
	}
}

// leaderOf returns the node that leads a data group.
func leaderOf(t *testing.T, c *harness.Cluster, group uint32) *harness.Node {
	t.Helper()
	var leader *harness.Node
	harness.Eventually(t, patience, "a leader", func() error {
		s, err := c.Running()[0].Status()
		if err != nil {
			return err
		}
		name := s.Leader(group)
		for _, n := range c.Running() {
			if n.Name == name {
				leader = n
				return nil
			}
		}
		return fmt.Errorf("group %d is led by %q", group, name)
	})
	return leader
}

func isolate(t *testing.T, c *harness.Cluster, n *harness.Node) {
	t.Helper()
	require.NoError(t, c.Network.Isolate(n.Name, fault.Conditions{Cut: true}))
}
