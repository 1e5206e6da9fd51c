package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Run performs what args ask for and writes the report to out. args are those after
// `quorate bench`; usage and progress go to diag. It returns flag.ErrHelp when help was asked for.
func Run(ctx context.Context, args []string, out, diag io.Writer) error {
	if len(args) == 2 && args[0] == floorCommand {
		return runFloorNode(ctx, args[1], out)
	}
	o, err := ParseOptions(args, diag)
	if err != nil {
		return err
	}
	r := &runner{options: o, diag: diag}
	if o.Mode == "sync" {
		report, err := r.measureSync(ctx)
		if err != nil {
			return fmt.Errorf("bench sync: %w", err)
		}
		if o.JSON {
			return writeJSON(out, report)
		}
		return report.writeText(out)
	}
	if o.Mode == "query" {
		report, err := r.measureQueries(ctx)
		if err != nil {
			return fmt.Errorf("bench query: %w", err)
		}
		if o.JSON {
			return writeJSON(out, report)
		}
		return report.writeText(out)
	}
	if o.Mode == "store" {
		report, err := r.measureStore(ctx)
		if err != nil {
			return fmt.Errorf("bench store: %w", err)
		}
		if o.JSON {
			return writeJSON(out, report)
		}
		return report.writeText(out)
	}
	report := Report{Machine: describeMachine(), Options: o}
	for _, mode := range r.modes() {
		results, err := r.measure(ctx, mode)
		if err != nil {
			return fmt.Errorf("bench %s: %w", mode.name, err)
		}
		report.Results = append(report.Results, results...)
	}
	if o.JSON {
		return writeJSON(out, &report)
	}
	return report.writeText(out)
}

// runner carries out measurements.
type runner struct {
	options Options
	diag    io.Writer
}

// mode is one measurement: a load on a number of nodes, with its floor or idle.
type mode struct {
	name  string
	nodes int
	kind  string // write, latency, lock, handover, idle or floor
	// target is what the ratio to the floor must reach: at most for latency, at least
	// for the others.
	target float64
}

func (r *runner) modes() []mode {
	o := &r.options
	switch o.Mode {
	case "all":
		return []mode{
			{"write, three nodes", 3, "write", 0.15},
			{"write, one node", 1, "write", 0.3},
			{"latency, three nodes", 3, "latency", 3},
			{"idle, three nodes", 3, "idle", 0},
		}
	case "latency":
		return []mode{{fmt.Sprintf("latency, nodes: %d", o.Nodes), o.Nodes, "latency", 3}}
	case "lock":
		return []mode{
			{fmt.Sprintf("lock, nodes: %d", o.Nodes), o.Nodes, "lock", 0.5},
			{fmt.Sprintf("lock with %d waiters, nodes: %d", lockWaiters, o.Nodes), o.Nodes, "handover", 0.5},
		}
	case "idle":
		return []mode{{fmt.Sprintf("idle, nodes: %d", o.Nodes), o.Nodes, "idle", 0}}
	case "floor":
		return []mode{{fmt.Sprintf("floor, nodes: %d", o.Nodes), o.Nodes, "floor", 0}}
	default:
		target := 0.15
		if o.Nodes == 1 {
			target = 0.3
		}
		return []mode{{fmt.Sprintf("write, nodes: %d", o.Nodes), o.Nodes, "write", target}}
	}
}

// measure repeats one measurement and reports the medians.
func (r *runner) measure(ctx context.Context, m mode) ([]Result, error) {
	o := r.options
	o.Nodes = m.nodes
	proposers := o.Connections
	switch m.kind {
	case "latency", "lock":
		o.Connections, o.Batch, proposers = 1, 1, 1
	case "handover":
		o.Connections, o.Batch, proposers = 1+lockWaiters, 1, 1
	}
	if m.kind == "idle" {
		result, err := r.idle(ctx, &o, m)
		return []Result{result}, err
	}
	var loads, floors []Sample
	for i := range o.Runs {
		fmt.Fprintf(r.diag, "%s: run %d of %d\n", m.name, i+1, o.Runs)
		if o.Target == "" {
			floor, err := runFloor(ctx, &o, proposers)
			if err != nil {
				return nil, err
			}
			floors = append(floors, floor.sample())
		}
		if m.kind == "floor" {
			continue
		}
		load, err := r.load(ctx, &o, m.kind)
		if err != nil {
			return nil, err
		}
		loads = append(loads, load.sample())
	}
	return []Result{summarise(m, loads, floors)}, nil
}

// load runs the clients once against a fresh cluster, or against the target.
func (r *runner) load(ctx context.Context, o *Options, kind string) (*measurement, error) {
	urls := strings.Split(o.Target, ",")
	if o.Target == "" {
		c, err := startCluster(ctx, o.Nodes)
		if err != nil {
			return nil, err
		}
		defer c.stop()
		urls = nil
		for _, n := range c.nodes {
			urls = append(urls, n.url())
		}
	}
	var workers []worker
	for i := range o.Connections {
		c, err := dial(ctx, o, i, urls[i%len(urls)])
		if err != nil {
			return nil, err
		}
		defer c.close()
		workers = append(workers, c.worker(kind))
	}
	m := drive(ctx, workers, o.Warmup, o.Duration, o.Rate/float64(o.Batch))
	if m.ops == 0 {
		return nil, fmt.Errorf("no operation was acknowledged: %w", cmp.Or(m.firstErr, errors.New("no error was reported")))
	}
	return m, nil
}

// idle starts a cluster, leaves it alone and reads what its processes use.
func (r *runner) idle(ctx context.Context, o *Options, m mode) (Result, error) {
	c, err := startCluster(ctx, o.Nodes)
	if err != nil {
		return Result{}, err
	}
	defer c.stop()
	result := Result{Name: m.name, Nodes: m.nodes}
	settle, watch := 10*time.Second, 30*time.Second
	fmt.Fprintf(r.diag, "%s: %s to settle, %s to watch\n", m.name, settle, watch)
	time.Sleep(settle)
	before, err := c.usage()
	if err != nil {
		return Result{}, err
	}
	start := time.Now()
	time.Sleep(watch)
	after, err := c.usage()
	if err != nil {
		return Result{}, err
	}
	for i := range after {
		result.IdleCPUPercent = append(result.IdleCPUPercent, 100*(after[i].cpu-before[i].cpu).Seconds()/time.Since(start).Seconds())
		result.IdleRSSMegabytes = append(result.IdleRSSMegabytes, float64(after[i].rss)/(1<<20))
	}
	return result, nil
}

// median is the middle of values, the upper one of an even number; zero of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
