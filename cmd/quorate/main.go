// Command quorate is the Quorate server and its operator tool in one binary.
// Without a subcommand it runs one node; see quorate help.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// process is what a command sees of the process that runs it.
type process struct {
	stdout, stderr io.Writer
	// getenv returns a variable of the environment, "" if it is not set.
	getenv func(string) string
}

// command is one subcommand.
type command struct {
	name, summary string
	// run executes the command with the arguments after its name and returns the
	// exit code.
	run func(p *process, args []string) int
}

// commands are the subcommands besides help, in the order of the help text.
func commands() []command {
	return []command{
		{"config", "print every setting with its effective value, source and meaning", runConfig},
		{"status", "show a running node: groups, leaders, terms, indexes, lag", runStatus},
		{"members", "show the nodes of the cluster", runMembers},
		{"leave", "take a running node out of its cluster for good", runLeave},
		{"bench", "measure throughput and latency beside the floor of the same run", runBench},
		{"version", "print the version", runVersion},
	}
}

func main() {
	os.Exit(dispatch(&process{stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}, os.Args[1:]))
}

// dispatch runs the subcommand that args name, or the server when they name none.
func dispatch(p *process, args []string) int {
	if len(args) == 0 {
		return runServer(p, args)
	}
	switch name := args[0]; name {
	case "help", "-h", "-help", "--help":
		return runHelp(p)
	case "-version", "--version":
		return runVersion(p, args[1:])
	default:
		for _, c := range commands() {
			if c.name == name {
				return c.run(p, args[1:])
			}
		}
		if strings.HasPrefix(name, "-") {
			return runServer(p, args)
		}
		return p.usageError(fmt.Sprintf("unknown command %q", name))
	}
}
