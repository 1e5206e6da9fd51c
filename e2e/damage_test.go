package e2e

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/e2e/harness"
)

// change changes every copy of some bytes in a file of a node that does not run.
func change(t *testing.T, file, from, to string) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Positive(t, bytes.Count(content, []byte(from)), "%q is not in %s", from, file)
	require.NoError(t, os.WriteFile(file, bytes.ReplaceAll(content, []byte(from), []byte(to)), 0o600))
}

// TestADamagedNodeHealsOrRefuses damages what a stopped node has on disk. Its store comes
// back from the other nodes; with a damaged log it does not start, because votes may be
// missing, and comes back as a new member when it is emptied.
func TestADamagedNodeHealsOrRefuses(t *testing.T) {
	c := harness.Start(t, config(), 3)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	n := c.Node("n2")
	rows := fillMap(ctx, t, n, "saved", 200)
	c.AwaitEqual()
	code, _ := n.Stop()
	require.Zero(t, code)
	change(t, filepath.Join(n.Dir(), "service.db"), "value of key-07", "value-of-key-07")
	n.Start()
	c.AwaitFormed()
	c.AwaitEqual()
	require.Contains(t, n.Log(), "is damaged")
	require.Contains(t, n.Log(), "damaged state was replaced")
	out, err := n.Tool(ctx, "scrub")
	require.NoError(t, err, string(out))

	n.Stop()
	logs, err := filepath.Glob(filepath.Join(n.Dir(), "service.db.raft", "wal", "*.wal"))
	require.NoError(t, err)
	require.NotEmpty(t, logs)
	content, err := os.ReadFile(logs[0])
	require.NoError(t, err)
	content[50] ^= 1
	require.NoError(t, os.WriteFile(logs[0], content, 0o600))
	n.Start()
	require.Equal(t, 1, n.AwaitExit())
	require.Contains(t, n.LogTail(1), filepath.Base(logs[0]), "the damaged file is named")

	n.Wipe()
	n.Start()
	c.AwaitFormed()
	c.AwaitEqual()
	client, err := n.Dial(ctx)
	require.NoError(t, err)
	defer client.Close()
	q, err := client.Subscribe(ctx, "saved")
	require.NoError(t, err)
	require.Equal(t, rows, q.Rows())
}
