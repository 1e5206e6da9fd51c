package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/quorate/quorate/client"
)

const (
	// lockTokenVariable tells the command below 'quorate lock' its fencing token.
	lockTokenVariable = "QUORATE_LOCK_TOKEN"
	// exitNotRun is the exit code of a shell for a command that it cannot run.
	exitNotRun = 127
	// signalExit is what shells add to the number of the signal that ended a command.
	signalExit = 128
)

func runLock(p *process, args []string) int {
	d := p.newDataCommand("lock [flags] NAME -- COMMAND [ARGUMENT...]")
	lease := d.flags.Duration("lease", client.DefaultLease, "how long others wait when this process dies")
	wait := d.flags.Duration("wait", 0, "how long to wait for the lock (default for ever)")
	grace := d.flags.Duration("grace", time.Second, "how long the command has to end by itself when the lock is lost")
	i := slices.Index(args, "--")
	if i < 0 {
		i = len(args)
	}
	command := args[min(i+1, len(args)):]
	args, ok, code := d.parse(args[:i], 1, 1)
	if !ok {
		return code
	}
	if len(command) == 0 {
		return p.usageError("usage: quorate " + d.usage)
	}
	return d.run(func(ctx context.Context, c *client.Client) error {
		waiting := ctx
		if *wait > 0 {
			var cancel context.CancelFunc
			waiting, cancel = context.WithTimeout(ctx, *wait)
			defer cancel()
		}
		l, err := c.Lock(waiting, args[0], client.WithLease(*lease))
		if err != nil {
			return err
		}
		return p.runUnder(l, command, d.timeout, *grace)
	})
}

// runUnder runs a command while a lock is held, and releases it. The command gets SIGTERM when
// this process does, and when the lock is lost; an interrupt it has from the terminal itself.
func (p *process) runUnder(l *client.Lock, command []string, timeout, grace time.Duration) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, p.stdout, p.stderr
	cmd.Env = append(os.Environ(), lockTokenVariable+"="+strconv.FormatUint(l.Token(), 10))
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(p.stderr, "quorate: %v\n", err)
		return errors.Join(&exitError{exitNotRun}, p.release(l, timeout))
	}
	var result error
	ended := make(chan struct{})
	go func() {
		result = cmd.Wait()
		close(ended)
	}()
	for {
		select {
		case s := <-signals:
			if s != os.Interrupt {
				_ = cmd.Process.Signal(s) // it may have ended
			}
		case <-ended:
			if released := p.release(l, timeout); released != nil {
				fmt.Fprintf(p.stderr, "quorate: %v\n", released)
			}
			return commandEnd(result)
		case <-l.Lost():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			kill := time.AfterFunc(grace, func() { _ = cmd.Process.Kill() })
			<-ended
			kill.Stop()
			return fmt.Errorf("the command was stopped: %w", client.ErrLockLost)
		}
	}
}

func (p *process) release(l *client.Lock, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.Release(ctx)
}

// commandEnd is the end of this process that says how a command ended.
func commandEnd(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return &exitError{signalExit + int(status.Signal())}
	}
	return &exitError{exit.ExitCode()}
}
