package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/cmd/quorate/config"
)

// recoverOptions are the flags of recover.
type recoverOptions struct {
	quorate.RecoverOptions
	json bool
}

// parseRecover reads the flags of recover. The second result is the exit code when the
// command cannot go on.
func (p *process) parseRecover(args []string) (*recoverOptions, int) {
	opts := &recoverOptions{}
	fs := flag.NewFlagSet("recover", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.BoolVar(&opts.Confirm, "yes", false, "make this node the only member; without it only the report is printed")
	fs.BoolVar(&opts.StartEmpty, "start-empty", false, "begin groups anew of which this node has nothing")
	fs.BoolVar(&opts.json, "json", false, "print JSON")
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(p.stdout, "Usage: quorate recover [flags], on the stopped node that is left, with its environment")
		fs.SetOutput(p.stdout)
		fs.PrintDefaults()
		return nil, exitOK
	case err != nil:
		return nil, p.usageError("recover: " + err.Error())
	case fs.NArg() > 0:
		return nil, p.usageError(fmt.Sprintf("recover: unexpected argument %q", fs.Arg(0)))
	}
	return opts, exitOK
}

func runRecover(p *process, args []string) int {
	opts, code := p.parseRecover(args)
	if opts == nil {
		return code
	}
	// Settings that only matter for running a node may be wrong here.
	settings, _, err := config.Load(nil, p.getenv)
	if err != nil {
		return p.fail(err)
	}
	report, err := quorate.Recover(context.Background(), settings.Server, opts.RecoverOptions, nil)
	if report != nil {
		if printErr := p.printRecovery(report, opts.json); printErr != nil {
			return p.fail(errors.Join(err, printErr))
		}
	}
	if errors.Is(err, quorate.ErrGroupsMissing) {
		err = fmt.Errorf("%w; --start-empty begins them anew", err)
	}
	if err != nil {
		return p.fail(err)
	}
	return exitOK
}

func (p *process) printRecovery(report *quorate.Recovery, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(p.stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(report); err != nil {
			return fmt.Errorf("print report: %w", err)
		}
		return nil
	}
	writeRecovery(p.stdout, report)
	return nil
}

func writeRecovery(w io.Writer, r *quorate.Recovery) {
	fmt.Fprintf(w, "node %s (%s) of cluster %s\n\n", r.NodeID, r.ServerID, r.ClusterID)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "GROUP\tTERM\tSTORED\tCOMMITTED\tLAST\tLAST TERM\tUNKNOWN\tWRITTEN\tVOTERS\tNONVOTERS")
	for _, g := range r.Groups {
		if !g.Held {
			fmt.Fprintf(t, "%d\t-\t-\t-\t-\t-\t-\tnothing here\t-\t-\n", g.Group)
			continue
		}
		written := "-"
		if !g.LastAt.IsZero() {
			written = g.LastAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", g.Group, g.Term, g.FlushedIndex, g.CommitIndex, g.LastIndex,
			g.LastTerm, g.Unknown, written, nodesOf(g.Voters), nodesOf(g.Nonvoters))
	}
	_ = t.Flush()
	fmt.Fprintln(w)
	fmt.Fprintln(t, "OTHER MEMBER\tSTATUS\tPEERS\tANSWERS\tSERVER ID")
	for _, m := range r.Members {
		fmt.Fprintf(t, "%s\t%s\t%s\t%v\t%s\n", m.NodeID, m.Status, orNone(m.PeerAddr), m.Answers, m.ServerID)
	}
	_ = t.Flush()
	fmt.Fprintln(w)
	switch {
	case r.Done:
		fmt.Fprintf(w, "recovered: %s is the only member of cluster %s\n"+
			"start it; give empty nodes its cluster address as seed; the other members never come back with their data\n", r.NodeID, r.NewClusterID)
	case r.Begun:
		fmt.Fprintln(w, "a recovery was begun and not finished: the node does not start before `quorate recover --yes` has succeeded")
	default:
		fmt.Fprintln(w, "nothing was changed. With --yes this node becomes the only member: entries that are UNKNOWN stay, also where they were\n"+
			"never acknowledged, and what only the other members had is lost. Do that when they are gone for good.")
	}
}
