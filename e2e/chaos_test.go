package e2e

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/e2e/chaos"
)

// logged writes lines to the log of a test.
type logged struct{ t *testing.T }

func (l logged) Write(p []byte) (int, error) {
	l.t.Logf("%s", p)
	return len(p), nil
}

// TestChaos is a short run of what `quorate chaos` does, with faults that any build of the
// server can be struck with.
func TestChaos(t *testing.T) {
	cfg := chaos.Config{
		Binary: *server, Dir: t.TempDir(), Seed: *seed, Out: logged{t},
		Rounds: 1, Round: 12 * time.Second, Nemeses: []string{"kill", "split", "reset", "slow"},
	}
	if *full {
		cfg.Rounds, cfg.Round, cfg.Nemeses, cfg.Workloads = 4, 0, nil, nil
	}
	report, err := chaos.Run(t.Context(), cfg)
	if errors.Is(err, chaos.ErrViolated) {
		t.Fatalf("%v\n%+v", err, report.Violations)
	}
	require.NoError(t, err)
	require.Equal(t, cfg.Rounds, report.Rounds)
	require.Greater(t, report.Operations, 100)
	require.NotEmpty(t, report.Faults)
}
