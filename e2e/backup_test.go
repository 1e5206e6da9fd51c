package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// tokenOf takes a lock, releases it and returns the token that it had.
func tokenOf(ctx context.Context, t *testing.T, n *harness.Node, name string) uint64 {
	t.Helper()
	c, err := n.Dial(ctx)
	require.NoError(t, err)
	defer c.Close()
	wait := int64(30_000)
	require.NoError(t, c.Send(ctx, &protocol.LockRequest{RequestID: "r", Name: name, WaitMillis: &wait}))
	m, _, err := c.Await(ctx, 0, func(m protocol.Message) bool {
		_, ok := m.(*protocol.LockGranted)
		return ok
	})
	require.NoError(t, err)
	return m.(*protocol.LockGranted).FencingToken
}

// fillMap writes records and returns them as queries show them.
func fillMap(ctx context.Context, t *testing.T, n *harness.Node, mapName string, count int) map[string]msgp.Raw {
	t.Helper()
	c, err := n.Dial(ctx)
	require.NoError(t, err)
	defer c.Close()
	rows := map[string]msgp.Raw{}
	batch := &protocol.OpBatch{}
	for i := range count {
		key := fmt.Sprintf("key-%03d", i)
		batch.Ops = append(batch.Ops, harness.Put(key, mapName, key, "value of "+key, protocol.Timestamp{}))
		rows[key] = msgp.AppendString(nil, "value of "+key)
	}
	require.True(t, c.Write(ctx, batch).Accepted())
	return rows
}

// TestABackupOfALoadedClusterFoundsAnotherOne saves a cluster while clients write, and
// starts a new one from the file.
func TestABackupOfALoadedClusterFoundsAnotherOne(t *testing.T) {
	cfg := config()
	cfg.Secret = secret
	old := harness.Start(t, cfg, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	rows := fillMap(ctx, t, old.Node("n1"), "saved", 200)
	token := tokenOf(ctx, t, old.Node("n1"), "saved")
	load := harness.StartLoad(old, harness.LoadConfig{})
	load.AwaitProgress(t, 50, patience)

	file := filepath.Join(t.TempDir(), "cluster.backup")
	_, err := old.Node("n2").Tool(ctx, "backup", file)
	require.NoError(t, err)
	load.AwaitProgress(t, 50, patience)
	load.Stop()
	later := tokenOf(ctx, t, old.Node("n1"), "saved")
	_, err = old.Node("n2").Tool(ctx, "backup", file)
	require.Error(t, err, "a file is not written over")
	_, err = old.Node("n2").OfflineTool(ctx, "verify", file)
	require.NoError(t, err)

	fresh := harness.New(t, cfg)
	n := fresh.Add("m1")
	n.Alone = true
	refuseDamaged(ctx, t, n, file)
	_, err = n.OfflineTool(ctx, "restore", "--node-id", "m1", file)
	require.NoError(t, err)
	_, err = n.OfflineTool(ctx, "restore", "--node-id", "m1", file)
	require.ErrorContains(t, err, "not empty")
	n.Start()
	if *full { // the others find the founder
		fresh.AwaitFormed()
		fresh.Add("m2").Start()
		fresh.Add("m3").Start()
	}
	fresh.AwaitFormed()
	for _, m := range fresh.Nodes() {
		c, err := m.Dial(ctx)
		require.NoError(t, err)
		q, err := c.Subscribe(ctx, "saved")
		require.NoError(t, err)
		require.Equal(t, rows, q.Rows(), "what %s has of what was acknowledged before the backup", m.Name)
		c.Close()
	}
	again := tokenOf(ctx, t, n, "saved")
	require.Greater(t, again, max(token, later), "tokens go on above those that the old cluster gave out after the backup")
	status, err := n.Status()
	require.NoError(t, err)
	before, err := old.Node("n1").Status()
	require.NoError(t, err)
	require.NotEqual(t, before.ClusterID, status.ClusterID)
	fillMap(ctx, t, n, "new", 10)
}

// refuseDamaged holds that a backup with one byte changed is refused and leaves nothing.
func refuseDamaged(ctx context.Context, t *testing.T, n *harness.Node, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	content[len(content)*2/3] ^= 16
	damaged := file + ".damaged"
	require.NoError(t, os.WriteFile(damaged, content, 0o600))
	for _, command := range []string{"verify", "inspect", "restore"} {
		_, err = n.OfflineTool(ctx, command, damaged)
		require.ErrorContains(t, err, "exit status 1", command)
		require.ErrorContains(t, err, "damaged", command)
	}
	left, err := filepath.Glob(filepath.Join(n.Dir(), "service.db*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
