package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// recovery is what `quorate recover --json` prints, as far as the test looks at it.
type recovery struct {
	ClusterID    string
	NewClusterID string
	Done         bool
	Groups       []struct {
		Group     uint32
		Held      bool
		LastIndex uint64
		Voters    []string
	}
	Members []struct {
		NodeID  string
		Answers bool
	}
}

// recoverNode runs quorate recover on a node that does not run.
func recoverNode(t *testing.T, n *harness.Node, args ...string) (recovery, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := n.OfflineTool(ctx, append([]string{"recover", "--json"}, args...)...)
	var r recovery
	if len(out) > 0 {
		require.NoError(t, json.Unmarshal(out, &r), "%s", out)
	}
	return r, err
}

// takeToken takes a lock through a node and leaves it to the end of the connection.
func takeToken(t *testing.T, n *harness.Node, name string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := n.Dial(ctx)
	require.NoError(t, err)
	defer c.Close()
	wait := patience.Milliseconds()
	require.NoError(t, c.Send(ctx, &protocol.LockRequest{RequestID: "r", Name: name, WaitMillis: &wait}))
	m, _, err := c.Await(ctx, 0, func(m protocol.Message) bool {
		_, granted := m.(*protocol.LockGranted)
		return granted
	})
	require.NoError(t, err)
	return int64(m.(*protocol.LockGranted).FencingToken)
}

// TestASurvivorOfALostQuorumIsRecovered loses two of three nodes for good, when the third
// has been away for a while: what it has stays, it grows to three again with new nodes,
// and the lost ones are refused.
func TestASurvivorOfALostQuorumIsRecovered(t *testing.T) {
	c := harness.Start(t, config(), 3)
	survivor, others := c.Node("n1"), []*harness.Node{c.Node("n2"), c.Node("n3")}
	load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed})
	load.AwaitProgress(t, 300, patience)
	load.Stop()
	c.AwaitEqual()
	before := readState(t, survivor, load.MapNames()...)

	survivor.Kill()
	missed := harness.StartLoad(c, harness.LoadConfig{Seed: *seed + 1, Nodes: others})
	missed.AwaitProgress(t, 100, patience)
	missed.Stop()
	locks := []string{"a", "b", "c", "d", "e"}
	lost := map[string]int64{}
	for _, name := range locks {
		lost[name] = takeToken(t, others[0], name)
	}

	report, err := recoverNode(t, survivor, "--yes")
	require.ErrorContains(t, err, "another member answers")
	require.Len(t, report.Members, 2)
	require.True(t, report.Members[0].Answers && report.Members[1].Answers, "%+v", report.Members)
	for _, n := range others {
		n.Kill()
	}
	report, err = recoverNode(t, survivor)
	require.NoError(t, err)
	require.False(t, report.Done)
	require.Len(t, report.Groups, 7)
	for _, g := range report.Groups {
		require.True(t, g.Held && g.LastIndex > 0 && len(g.Voters) == 3, "%+v", g)
	}
	report, err = recoverNode(t, survivor, "--yes")
	require.NoError(t, err)
	require.True(t, report.Done)
	require.NotEqual(t, report.ClusterID, report.NewClusterID)

	survivor.Start()
	c.AwaitFormed()
	status, err := survivor.Status()
	require.NoError(t, err)
	require.Equal(t, report.NewClusterID, status.ClusterID)
	require.Equal(t, before, readState(t, survivor, load.MapNames()...))
	for _, name := range locks {
		token := takeToken(t, survivor, name)
		require.Greater(t, token, lost[name], "lock %s", name)
		require.Less(t, token, int64(1)<<53, "lock %s", name)
	}

	fresh := harness.StartLoad(c, harness.LoadConfig{Seed: *seed + 2, Nodes: []*harness.Node{survivor}, Prefix: "again"})
	fresh.AwaitProgress(t, 50, patience)
	for i, n := range others {
		n.Start()
		require.Equal(t, 3, n.AwaitExit(), "the lost node %s: %s", n.Name, n.LogTail(5))
		require.Contains(t, n.LogTail(5), "recovered without this node")
		c.Add(fmt.Sprintf("n%d", 4+i)).Start()
		c.AwaitFormed()
	}
	settle(t, c, fresh)
}

// TestARecoveryThatIsKilledIsRepeated kills quorate recover at random moments: nothing is
// lost, and the node does not start before one has succeeded.
func TestARecoveryThatIsKilledIsRepeated(t *testing.T) {
	rng := rand.New(rand.NewPCG(uint64(*seed), 18))
	c := harness.New(t, config())
	n := c.Add("n1")
	n.Alone = true
	n.Start()
	c.AwaitFormed()
	load := harness.StartLoad(c, harness.LoadConfig{Seed: *seed})
	load.AwaitProgress(t, 100, patience)
	load.Stop()
	c.AwaitEqual()
	before := readState(t, n, load.MapNames()...)
	n.Kill()
	killed := 0
	for range 25 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(2+rng.IntN(60))*time.Millisecond)
		if _, err := n.OfflineTool(ctx, "recover", "--yes"); err != nil {
			require.Error(t, ctx.Err(), "%v", err)
			killed++
		}
		cancel()
	}
	t.Logf("%d of 25 were killed", killed)
	report, err := recoverNode(t, n, "--yes")
	require.NoError(t, err)
	require.True(t, report.Done)
	n.Start()
	c.AwaitFormed()
	require.Equal(t, before, readState(t, n, load.MapNames()...))
	fresh := harness.StartLoad(c, harness.LoadConfig{Seed: *seed + 1, Prefix: "again"})
	settle(t, c, fresh)
}
