package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"syscall"

	"github.com/quorate/quorate/cmd/quorate/bench"
)

// runBench measures this build on this machine; see package bench.
func runBench(p *process, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The nodes of the floor run as this process does, and as the server does.
	p.tuneRuntime(0)
	err := bench.Run(ctx, args, p.stdout, p.stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		return p.fail(err)
	}
	return exitOK
}
