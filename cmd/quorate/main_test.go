package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/quorate/quorate"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"quorate": main})
}

// TestScripts runs the scenarios in testdata/script. They know the command
// "exits CODE program args...", which checks the exit code.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: exits CODE program args...")
				}
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				got := 0
				var exit *exec.ExitError
				if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
					got = exit.ExitCode()
				} else if err != nil {
					ts.Fatalf("%v", err)
				}
				if got != want {
					ts.Fatalf("exit code %d, want %d", got, want)
				}
			},
		},
	})
}

func TestExitCodeTellsWhatHappened(t *testing.T) {
	cases := map[int]error{
		0: nil,
		1: errors.New("port in use"),
		3: fmt.Errorf("serve: %w", &quorate.RefusedError{Err: errors.New("duplicate")}),
		4: fmt.Errorf("serve: %w: disk", quorate.ErrStorageFailed),
	}
	for want, err := range cases {
		if got := exitCode(err); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
}
