// Command quorate is the Quorate server, its operator tool and a client in one binary.
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
		{"ready", "exit 0 if a running node can serve, 1 if not", runReady},
		{"members", "show the nodes of the cluster", runMembers},
		{"transfer", "hand the leadership of a group to a node, or to any caught-up voter", runTransfer},
		{"leave", "take a running node out of its cluster for good", runLeave},
		{"recover", "make a stopped node the only member when the others are gone for good", runRecover},
		{"get", "print a record of a map, or all of them", runGet},
		{"put", "write or remove a record", runPut},
		{"watch", "print a map and its changes until a signal", runWatch},
		{"lock", "run a command while holding a lock", runLock},
		{"publish", "publish a message to a topic", runPublish},
		{"subscribe", "print the messages of a topic until a signal", runSubscribe},
		{"counter", "print a counter, or add to it", runCounter},
		{"support", "write a bundle for somebody who helps: status, metrics, log, no secrets", runSupport},
		{"scrub", "have a running node read and check everything that it has stored", runScrub},
		{"backup", "save the cluster of a running node to a file", runBackup},
		{"verify", "check every item of a backup", runVerify},
		{"inspect", "show what a backup contains", runInspect},
		{"restore", "make an empty store the first node of a new cluster with a backup's contents", runRestore},
		{"bench", "measure throughput and latency beside the floor of the same run", runBench},
		{"chaos", "run a cluster through faults and check what its clients saw", runChaos},
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
