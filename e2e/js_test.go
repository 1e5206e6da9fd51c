package e2e

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/e2e/harness"
)

// TestJavaScriptClientsAreUnderstood runs the scripts in js against three nodes. It wants
// Node.js and the modules, which `make e2e` installs, so it belongs to the full run.
func TestJavaScriptClientsAreUnderstood(t *testing.T) {
	onlyFull(t)
	for _, script := range []string{"client.mjs", "sync.mjs"} {
		t.Run(script, func(t *testing.T) { runScript(t, script) })
	}
}

func runScript(t *testing.T, script string) {
	cfg := config()
	cfg.Secret = secret
	c := harness.Start(t, cfg, 3)
	var urls []string
	for _, n := range c.Nodes() {
		urls = append(urls, n.URL())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", script)
	cmd.Dir = "js"
	cmd.Env = append(os.Environ(), "QUORATE_URLS="+strings.Join(urls, ","), "JWT_SECRET="+secret)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "ok\n", string(out))
}
