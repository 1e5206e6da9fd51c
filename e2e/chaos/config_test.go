package chaos

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// plain is a server that has the commands given.
func plain(t *testing.T, commands string) string {
	t.Helper()
	// The build of this test stands for that of a server without tags.
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv("CHAOS_TEST_COMMANDS", commands)
	return self
}

// TestMain lets the test binary answer as a server does to help.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "help" {
		_, _ = io.WriteString(os.Stdout, os.Getenv("CHAOS_TEST_COMMANDS"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestConfigTakesWhatTheServerHas(t *testing.T) {
	cfg := Config{Binary: plain(t, "  quorate transfer  hand over\n"), Dir: t.TempDir(), Out: io.Discard, Rounds: 1}
	require.NoError(t, cfg.complete())
	require.Len(t, cfg.Workloads, len(workloads))
	require.Contains(t, cfg.Nemeses, "transfer")
	require.NotContains(t, cfg.Nemeses, "clock", "it needs the tag stress")
	require.NotContains(t, cfg.Nemeses, recoverName)

	cfg.Nemeses = []string{"clock"}
	require.ErrorContains(t, cfg.complete(), "stress")
}

func TestConfigOfFiveNodesRecoversNoSurvivor(t *testing.T) {
	cfg := Config{Binary: plain(t, "  quorate recover  x\n"), Dir: t.TempDir(), Out: io.Discard, Rounds: 1, Nodes: 5}
	require.NoError(t, cfg.complete())
	require.Len(t, cfg.Workloads, len(workloads))
	require.NotContains(t, cfg.Nemeses, recoverName)
}

func TestConfigSaysWhatIsWrong(t *testing.T) {
	good := Config{Binary: "b", Dir: "d", Out: io.Discard, Rounds: 1}
	for want, change := range map[string]func(c *Config){
		"binary, directory":      func(c *Config) { c.Binary = "" },
		"a time or a number":     func(c *Config) { c.Rounds = 0 },
		"4 nodes":                func(c *Config) { c.Nodes = 4 },
		"above zero":             func(c *Config) { c.Pause = -1 },
		`unknown workload "no"`:  func(c *Config) { c.Workloads = []string{"no"} },
		`unknown nemesis "rain"`: func(c *Config) { c.Nemeses = []string{"rain"} },
	} {
		cfg := good
		change(&cfg)
		require.ErrorContains(t, cfg.complete(), want)
	}
}

func TestHarnessFailuresEndARunInOrder(t *testing.T) {
	b := &bed{dir: t.TempDir(), out: io.Discard}
	var order []string
	b.Cleanup(func() { order = append(order, "first") })
	b.Cleanup(func() { order = append(order, "second") })
	err := guard(func() { b.Fatalf("no %s", filepath.Base("node")) })
	require.EqualError(t, err, "no node")
	require.Panics(t, func() { _ = guard(func() { panic("a bug") }) })
	b.close()
	require.Equal(t, []string{"second", "first"}, order)
}
