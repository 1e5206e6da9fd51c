package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/cmd/quorate/config"
)

func runHelp(p *process) int {
	fmt.Fprint(p.stdout, "Usage:\n  quorate [flags]           run a node\n")
	for _, c := range commands() {
		fmt.Fprintf(p.stdout, "  quorate %-17s %s\n", c.name, c.summary)
	}
	fmt.Fprintln(p.stdout)
	if err := config.Usage(p.stdout); err != nil {
		return p.fail(err)
	}
	return exitOK
}

func runVersion(p *process, args []string) int {
	if len(args) > 0 {
		return p.usageError("version takes no arguments")
	}
	fmt.Fprintf(p.stdout, "quorate %s %s %s/%s\n", quorate.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return exitOK
}

func runConfig(p *process, args []string) int {
	settings, code := p.load(args)
	if settings == nil {
		return code
	}
	if err := settings.Print(p.stdout); err != nil {
		return p.fail(fmt.Errorf("print configuration: %w", err))
	}
	return exitOK
}

// load reads the settings of the server. It returns nil and the exit code when
// they cannot be used; everything that is wrong was printed then, a line each.
func (p *process) load(args []string) (*config.Settings, int) {
	settings, problems, err := config.Load(args, p.getenv)
	if errors.Is(err, config.ErrHelp) {
		return nil, runHelp(p)
	}
	if len(problems) == 0 {
		return settings, exitOK
	}
	for _, problem := range problems {
		fmt.Fprintf(p.stderr, "quorate: %s\n", problem)
	}
	fmt.Fprintln(p.stderr, "Run 'quorate help' for the meaning of every setting.")
	return nil, exitUsage
}
