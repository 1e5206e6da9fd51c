package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/quorate/quorate/e2e/chaos"
)

// runChaos runs clusters of this executable through faults; see package chaos.
func runChaos(p *process, args []string) int {
	cfg, err := p.chaosConfig(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return p.usageError("chaos: " + err.Error())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Fprintf(p.stdout, "seed %d, files in %s\n", cfg.Seed, cfg.Dir)
	report, err := chaos.Run(ctx, cfg)
	if report != nil {
		fmt.Fprintf(p.stdout, "%d rounds, %d operations, %d unknown, %d violations, %.0f s; report in %s\n",
			report.Rounds, report.Operations, report.Unknown, len(report.Violations), report.Seconds, cfg.Dir)
	}
	switch {
	case errors.Is(err, chaos.ErrConfig):
		return p.usageError("chaos: " + err.Error())
	case err != nil:
		return p.fail(err)
	}
	return exitOK
}

// chaosConfig reads the flags.
func (p *process) chaosConfig(args []string) (chaos.Config, error) {
	cfg := chaos.Config{Out: p.stdout}
	var minutes float64
	var workloads, nemeses string
	f := flag.NewFlagSet("quorate chaos", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Float64Var(&minutes, "minutes", 0, "how long to go on; the round under way is completed (default 5 without -rounds)")
	f.IntVar(&cfg.Rounds, "rounds", 0, "number of rounds; 0 is no bound")
	f.Int64Var(&cfg.Seed, "seed", 0, "seed of the first round, further rounds have the next; 0 takes one from the clock")
	f.DurationVar(&cfg.Round, "round", 30*time.Second, "how long faults strike in a round")
	f.DurationVar(&cfg.Pause, "pause", 0, "longest wait of a client between two operations (default 40ms)")
	f.IntVar(&cfg.Nodes, "nodes", 3, "size of the cluster, 3 or 5")
	f.StringVar(&workloads, "workloads", "", "comma-separated workloads (default all)")
	f.StringVar(&nemeses, "nemeses", "", "comma-separated kinds of faults (default all)")
	f.StringVar(&cfg.Dir, "dir", "", "directory for stores, histories and report, kept (default a new one)")
	f.StringVar(&cfg.Binary, "binary", "", "server to run (default this executable)")
	f.BoolVar(&cfg.Keep, "keep", false, "keep the histories of rounds in which nothing was wrong")
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(p.stdout, "Usage: quorate chaos [flags]")
		f.SetOutput(p.stdout)
		f.PrintDefaults()
	}
	if err != nil {
		return cfg, err
	}
	if f.NArg() > 0 {
		return cfg, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	cfg.Workloads, cfg.Nemeses = names(workloads), names(nemeses)
	if minutes == 0 && cfg.Rounds == 0 {
		minutes = 5
	}
	cfg.Time = time.Duration(minutes * float64(time.Minute))
	if cfg.Seed == 0 {
		cfg.Seed = time.Now().UnixNano()
	}
	if cfg.Binary == "" {
		if cfg.Binary, err = os.Executable(); err != nil {
			return cfg, fmt.Errorf("find this executable: %w", err)
		}
	}
	if cfg.Dir == "" {
		if cfg.Dir, err = os.MkdirTemp("", "quorate-chaos-"); err != nil {
			return cfg, fmt.Errorf("make a directory: %w", err)
		}
	}
	return cfg, nil
}

// names splits a list.
func names(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
