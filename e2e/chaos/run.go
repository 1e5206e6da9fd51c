package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/quorate/quorate/e2e/harness"
)

// ErrViolated is wrapped by Run when something happened that must not, and ErrConfig when
// it cannot do what the configuration asks for.
var (
	ErrViolated = errors.New("the cluster did what it must not")
	ErrConfig   = errors.New("configuration")
)

const (
	// stuckTime is how long a cluster with which nothing is wrong any more may take to do
	// anything, and settleTime how long one thing may take on a very busy machine.
	stuckTime, settleTime = 4 * time.Minute, 2 * time.Minute
)

// run is one call of Run.
type run struct {
	cfg     Config
	start   time.Time
	bed     *bed
	cluster *harness.Cluster
	report  *Report
}

// now is nanoseconds since the start, on a clock that nothing steps.
func (r *run) now() int64 { return time.Since(r.start).Nanoseconds() }

// Run runs rounds until the time is over, ctx ends, or something was wrong, and writes the
// report. The error wraps ErrViolated if the cluster is to blame, and is another one if the
// run itself could not go on.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("directory of the run: %w", err)
	}
	r := &run{cfg: cfg, start: time.Now(), bed: &bed{dir: filepath.Join(cfg.Dir, "nodes"), out: cfg.Out}, report: newReport(&cfg)}
	defer r.bed.close()
	var err error
	if g := guard(func() { err = r.rounds(ctx) }); g != nil {
		err = g
	}
	return r.report, errors.Join(err, r.report.write(filepath.Join(cfg.Dir, "report.json"), r.now()))
}

func (r *run) rounds(ctx context.Context) error {
	r.startCluster()
	for n := 0; ctx.Err() == nil; n++ {
		if r.cfg.Rounds > 0 && n >= r.cfg.Rounds || r.cfg.Time > 0 && time.Since(r.start) >= r.cfg.Time {
			return nil
		}
		d := &round{run: r, cluster: r.cluster, number: n + 1, seed: r.cfg.Seed + int64(n), tag: fmt.Sprint("r", n+1), storm: &storm{}}
		err := d.play(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("round %d was interrupted: %w", d.number, ctx.Err())
		}
		fmt.Fprintln(r.cfg.Out, d.line())
		r.report.add(d)
		if err != nil {
			return err
		}
		if len(d.problems) > 0 {
			return r.violated(d)
		}
	}
	return nil
}

// startCluster forms the cluster of the run. The short logs, which make followers need
// snapshots, and the files of the clocks are for servers built with the tag stress.
func (r *run) startCluster() {
	r.cluster = harness.New(r.bed, harness.Config{Binary: r.cfg.Binary, Proxied: true})
	rng := rand.New(rand.NewPCG(uint64(r.cfg.Seed), 1))
	for i := range r.cfg.Nodes + guests {
		add := r.cluster.Add
		if i >= r.cfg.Nodes {
			add = r.cluster.AddGuest
		}
		n := add(fmt.Sprint("n", i+1))
		n.Env = []string{"QUORATE_STRESS_CLOCK=" + clockFile(n), fmt.Sprint("QUORATE_STRESS_LOG=", 64<<rng.IntN(5))}
	}
	for _, n := range r.cluster.Nodes() {
		n.Start()
	}
	r.cluster.AwaitFormed()
}

// violated says what was wrong in a round, and how to try again.
func (r *run) violated(d *round) error {
	const most = 20
	for i, p := range d.problems {
		if i == most {
			fmt.Fprintf(r.cfg.Out, "  and %d more, see report.json\n", len(d.problems)-most)
			break
		}
		fmt.Fprintln(r.cfg.Out, " ", p)
	}
	fmt.Fprintf(r.cfg.Out, "histories and timelines: %s\nlogs of the nodes: %s\n", d.dir, r.bed.dir)
	fmt.Fprintf(r.cfg.Out, "repeat with: quorate chaos %s\n", d.repeat())
	return fmt.Errorf("%w: %s", ErrViolated, d.problems[0])
}
