package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/cmd/quorate/logging"
)

// spareMB is what the process may take beyond the ceiling before it collects garbage at
// every turn.
const spareMB = 48

// runServer runs one node until a signal, then drains it.
func runServer(p *process, args []string) int {
	settings, code := p.load(args)
	if settings == nil {
		return code
	}
	p.tuneRuntime(int64(min(settings.Server.Storage.Cache.MaxRAMMB, 1<<40)+spareMB) << 20)
	stdout := logging.NewLineWriter(p.stdout)
	logger := logging.New(logging.Config{
		Filter: settings.LogFilter,
		JSON:   settings.LogJSON,
		NodeID: settings.Server.NodeID,
		Out:    stdout,
	})
	for _, line := range settings.Warnings() {
		logger.Warn(line)
	}
	server, err := quorate.New(settings.Server, quorate.Deps{Logger: logger})
	if err != nil {
		return p.fail(err)
	}
	defer server.Close()
	ctx, stop := drainOnSignal(func(s os.Signal) { logger.Info("draining", "signal", s) })
	defer stop()
	port, err := server.Start()
	if err != nil {
		return p.fail(err)
	}
	// Tools wait for this line, alone, in every log format.
	fmt.Fprintf(stdout, "PORT=%d\n", port)
	if err := server.Serve(ctx); err != nil {
		return p.fail(err)
	}
	return exitOK
}

// drainOnSignal returns a context that the first SIGTERM or SIGINT ends. A second
// one ends the process at once, as a shell reports it. The returned stop ends the
// watching.
func drainOnSignal(first func(os.Signal)) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for draining := false; ; draining = true {
			select {
			case <-done:
				return
			case s := <-signals:
				if draining {
					os.Exit(128 + int(s.(syscall.Signal)))
				}
				first(s)
				cancel()
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		<-stopped
		cancel()
	}
}
