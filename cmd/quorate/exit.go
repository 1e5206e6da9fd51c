package main

import (
	"errors"
	"fmt"

	"github.com/quorate/quorate"
)

// The exit codes. A second signal during the drain ends the process with 128 plus
// the signal's number.
const (
	exitOK      = 0
	exitFailure = 1 // anything at start that is not one of the others
	exitUsage   = 2 // bad flag, variable or combination
	exitRefused = 3 // the cluster refuses this node
	exitStorage = 4 // storage failed while running
)

// exitCode is the code that tells a supervisor what err means.
func exitCode(err error) int {
	var refused *quorate.RefusedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &refused):
		return exitRefused
	case errors.Is(err, quorate.ErrStorageFailed):
		return exitStorage
	default:
		return exitFailure
	}
}

// fail prints err on one line and returns its exit code.
func (p *process) fail(err error) int {
	fmt.Fprintf(p.stderr, "quorate: %v\n", err)
	return exitCode(err)
}

// usageError prints what is wrong with the command line.
func (p *process) usageError(reason string) int {
	fmt.Fprintf(p.stderr, "quorate: %s\nRun 'quorate help' for usage.\n", reason)
	return exitUsage
}
