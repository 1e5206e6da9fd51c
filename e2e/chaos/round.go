package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/e2e/chaos/check"
	"github.com/quorate/quorate/e2e/harness"
)

// round is one round of a run.
type round struct {
	run     *run
	cluster *harness.Cluster
	number  int
	seed    int64
	// tag begins all names of the round, dir holds its histories.
	tag, dir  string
	workloads []workload
	storm     *storm
	took      time.Duration
	// phases says how long each part of the round took.
	phases []string
	// busy are the clients that work, watching those that only watch.
	busy, watching sync.WaitGroup
	// silent are the connections that wait for a late answer, until ended is closed.
	silent sync.WaitGroup
	ended  <-chan struct{}

	// mu protects problems.
	mu       sync.Mutex
	problems []string
}

// problem notes something that must not be.
func (d *round) problem(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problems = append(d.problems, fmt.Sprintf(format, args...))
}

// play plays the round. What the cluster does wrong is in problems; an error means that the
// round could not be played to its end.
func (d *round) play(ctx context.Context) error {
	started := time.Now()
	defer func() { d.took = time.Since(started) }()
	d.dir = filepath.Join(d.run.cfg.Dir, fmt.Sprintf("round-%04d", d.number))
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return fmt.Errorf("directory of the round: %w", err)
	}
	d.storm = &storm{run: d.run, cluster: d.cluster, problem: d.problem}
	d.ended = ctx.Done()
	err := d.scenario(ctx)
	d.silent.Wait()
	for _, w := range d.workloads {
		err = errors.Join(err, w.base().history.Close())
	}
	if err != nil || ctx.Err() != nil {
		return firstOf(err, ctx.Err())
	}
	judging := time.Now()
	defer func() { d.phase("judged", judging) }()
	return d.judge()
}

// scenario is what happens in the round.
func (d *round) scenario(ctx context.Context) error {
	if d.run.cfg.losesQuorum(d.seed) {
		return d.loseQuorum(ctx)
	}
	for _, name := range d.run.cfg.Workloads {
		l, err := d.newLoad(name)
		if err != nil {
			return err
		}
		d.workloads = append(d.workloads, workloads[name](l))
	}
	return d.work(ctx)
}

// phase notes how long a part took that began at since.
func (d *round) phase(name string, since time.Time) time.Time {
	now := time.Now()
	d.phases = append(d.phases, fmt.Sprintf("%s %.1f", name, now.Sub(since).Seconds()))
	return now
}

// work has the clients work through the faults, and reads what has become of it.
func (d *round) work(ctx context.Context) error {
	busy, rest := context.WithCancel(ctx)
	watching, leave := context.WithCancel(ctx)
	defer d.watching.Wait()
	defer leave()
	defer d.busy.Wait()
	defer rest()
	for _, w := range d.workloads {
		w.start(busy, watching)
	}
	raging, end := context.WithTimeout(ctx, d.run.cfg.Round)
	err := d.storm.rage(raging, d.seed, d.run.cfg.Nemeses)
	end()
	d.cluster.Network.Heal()
	if err != nil || ctx.Err() != nil {
		return firstOf(err, ctx.Err())
	}
	at := time.Now()
	if !d.mended(ctx) {
		return ctx.Err()
	}
	at = d.phase("mended", at)
	if !d.progress(ctx) {
		return ctx.Err()
	}
	rest()
	d.busy.Wait()
	d.silent.Wait()
	at = d.phase("progress", at)
	if !d.equal(ctx) {
		return ctx.Err()
	}
	at = d.phase("equal", at)
	var reading sync.WaitGroup
	for _, w := range d.workloads {
		reading.Go(func() {
			if err := w.quiet(ctx); err != nil && ctx.Err() == nil {
				d.problem("%s", err)
			}
		})
	}
	reading.Wait()
	at = d.phase("read", at)
	d.equal(ctx)
	d.roots(ctx)
	d.phase("compared", at)
	return ctx.Err()
}

// judge checks the histories. Those of a clean round are removed, unless they are kept.
func (d *round) judge() error {
	var errs []error
	for _, w := range d.workloads {
		l := w.base()
		ops := l.history.Ops()
		found := w.judge(ops)
		for _, p := range found {
			d.problem("%s: %s", l.name, p)
		}
		if len(found) > 0 {
			errs = append(errs, check.WriteTimeline(filepath.Join(d.dir, l.name+".html"), check.Timeline{
				Title: fmt.Sprintf("%s, round %d, seed %d", l.name, d.number, d.seed), Ops: ops, Faults: d.storm.bands, Problems: found,
			}))
		}
	}
	if len(d.problems) == 0 && !d.run.cfg.Keep {
		errs = append(errs, os.RemoveAll(d.dir))
	}
	return errors.Join(errs...)
}

// line says in one line how the round went.
func (d *round) line() string {
	total, unknown := d.ops()
	verdict := "clean"
	if len(d.problems) > 0 {
		verdict = fmt.Sprintf("%d PROBLEMS", len(d.problems))
	}
	var faults []string
	for name, n := range d.storm.counts() {
		faults = append(faults, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(faults)
	return fmt.Sprintf("round %d seed %d: %s, %d operations, %d unknown, faults: %s, %.1f s (%s)",
		d.number, d.seed, verdict, total, unknown, strings.Join(faults, ", "), d.took.Seconds(), strings.Join(d.phases, ", "))
}

func (d *round) ops() (total, unknown int) {
	for _, w := range d.workloads {
		total += int(w.base().total.Load())
		unknown += int(w.base().unknown.Load())
	}
	return total, unknown
}

// repeat are the flags that choose the round again.
func (d *round) repeat() string {
	cfg := &d.run.cfg
	flags := fmt.Sprintf("-seed %d -rounds 1 -round %v -nodes %d", d.seed, cfg.Round, cfg.Nodes)
	flags += " -workloads " + strings.Join(cfg.Workloads, ",")
	return flags + " -nemeses " + strings.Join(d.run.cfg.Nemeses, ",")
}
