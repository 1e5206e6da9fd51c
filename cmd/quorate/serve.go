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

// What the process takes before it collects garbage at every turn: the ceiling and spareMB,
// for connections and what is in flight. Below small ceilings it is besideMB more, but no
// more than leastMB: the journals of the store and the log take that much below any.
const (
	spareMB  = 48
	besideMB = 128
	leastMB  = 192
)

// memoryLimitMB is the limit for a ceiling.
func memoryLimitMB(ceilingMB uint64) uint64 {
	ceilingMB = min(ceilingMB, 1<<40)
	return max(ceilingMB+spareMB, min(ceilingMB+besideMB, leastMB))
}

// logTailBytes is how much of the log is kept for support bundles.
const logTailBytes = 256 << 10

// runServer runs one node until a signal, then drains it.
func runServer(p *process, args []string) int {
	settings, code := p.load(args)
	if settings == nil {
		return code
	}
	p.tuneRuntime(int64(memoryLimitMB(settings.Server.Storage.Cache.MaxRAMMB)) << 20)
	stdout := logging.NewLineWriter(p.stdout)
	tail := logging.NewTail(stdout, logTailBytes)
	logger, levels := logging.New(logging.Config{
		Filter: settings.LogFilter,
		JSON:   settings.LogJSON,
		NodeID: settings.Server.NodeID,
		Out:    tail,
	})
	for _, line := range settings.Warnings() {
		logger.Warn(line)
	}
	if levels.Check(settings.LogFilter) != nil {
		settings.LogFilter = "info" // what the logger has taken in its place
	}
	server, err := quorate.New(settings.Server, quorate.Deps{
		Logger: logger, LogFilter: settings.LogFilter, SetLogFilter: levels.Set, CheckLogFilter: levels.Check,
		LogTail: tail.Text,
	})
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
