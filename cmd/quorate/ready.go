package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/quorate/quorate"
)

// readyTimeout bounds the question whether a node is ready.
const readyTimeout = 4 * time.Second

// runReady tells by its exit code whether the node can serve, for supervisors that run a
// command. It asks over the cluster port, whose address the node leaves beside its store.
func runReady(p *process, args []string) int {
	timeout := readyTimeout
	t, code := p.parseTarget("ready", args, false, func(fs *flag.FlagSet) {
		fs.DurationVar(&timeout, "timeout", timeout, "how `long` to wait for an answer")
	})
	if t == nil {
		return code
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	status, err := quorate.FetchStatus(ctx, t.addr, t.secret)
	switch {
	case err != nil:
		return p.fail(err)
	case !status.Ready:
		fmt.Fprintf(p.stdout, "not ready: %s, %s\n", status.Health, status.Phase)
		return exitFailure
	default:
		fmt.Fprintln(p.stdout, "ready")
		return exitOK
	}
}
