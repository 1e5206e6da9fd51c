package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/cmd/quorate/config"
	"github.com/quorate/quorate/fsm/backup"
)

// fileCommand is the command line of a command on a backup: flags, then the file.
type fileCommand struct {
	flags *flag.FlagSet
	file  string
}

// parseFile reads args. The second result is the exit code when the command cannot go on.
func (p *process) parseFile(name, argument string, args []string, define func(*flag.FlagSet)) (*fileCommand, int) {
	c := &fileCommand{flags: flag.NewFlagSet(name, flag.ContinueOnError)}
	c.flags.SetOutput(io.Discard)
	define(c.flags)
	var files []string
	err := c.flags.Parse(args)
	for err == nil && c.flags.NArg() > 0 { // flags may also follow the file
		files = append(files, c.flags.Arg(0))
		err = c.flags.Parse(c.flags.Args()[1:])
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(p.stdout, "Usage: quorate %s [flags] %s\n", name, argument)
		c.flags.SetOutput(p.stdout)
		c.flags.PrintDefaults()
		return nil, exitOK
	case err != nil:
		return nil, p.usageError(name + ": " + err.Error())
	case len(files) != 1:
		return nil, p.usageError(fmt.Sprintf("%s: the name of one file is needed", name))
	}
	c.file = files[0]
	return c, exitOK
}

// runBackup saves a cluster. The file appears when it is complete and on disk.
func runBackup(p *process, args []string) int {
	t := &target{}
	c, code := p.parseFile("backup", "FILE", args, func(fs *flag.FlagSet) {
		fs.StringVar(&t.addr, "addr", "", "cluster address of a node, `host:port` (default: the node that runs on SERVICE_STORE_PATH)")
		fs.BoolVar(&t.json, "json", false, "print JSON")
	})
	if c == nil {
		return code
	}
	if err := p.complete(t); err != nil {
		return p.fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	summary, err := saveTo(ctx, c.file, t)
	if err != nil {
		return p.fail(err)
	}
	return p.printSummary(summary, t.json)
}

// saveTo writes a backup to a file that must not exist. Whatever goes wrong, a file under
// that name is a complete backup.
func saveTo(ctx context.Context, name string, t *target) (summary *backup.Summary, err error) {
	if _, err := os.Lstat(name); err == nil {
		return nil, fmt.Errorf("%s exists already", name)
	}
	file, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.partial")
	if err != nil {
		return nil, fmt.Errorf("create backup: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	summary, err = quorate.Backup(ctx, t.addr, t.secret, file)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	// Unlike a renaming, a link replaces nothing.
	if err := os.Link(file.Name(), name); err != nil {
		return nil, fmt.Errorf("put the backup in its place: %w", err)
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	return summary, errors.Join(dir.Sync(), dir.Close())
}

func runVerify(p *process, args []string) int {
	return p.withBackup("verify", args, backup.Verify)
}

func runInspect(p *process, args []string) int {
	return p.withBackup("inspect", args, backup.Inspect)
}

// withBackup reads a backup with read and prints what it contains.
func (p *process) withBackup(name string, args []string, read func(io.Reader) (*backup.Summary, error)) int {
	asJSON := false
	c, code := p.parseFile(name, "FILE", args, func(fs *flag.FlagSet) {
		fs.BoolVar(&asJSON, "json", false, "print JSON")
	})
	if c == nil {
		return code
	}
	file, err := os.Open(c.file)
	if err != nil {
		return p.fail(err)
	}
	defer file.Close()
	summary, err := read(file)
	if err != nil {
		return p.fail(fmt.Errorf("%s: %w", c.file, err))
	}
	return p.printSummary(summary, asJSON)
}

func runRestore(p *process, args []string) int {
	nodeID := ""
	c, code := p.parseFile("restore", "FILE", args, func(fs *flag.FlagSet) {
		fs.StringVar(&nodeID, "node-id", "", "`id` of the node that will run on SERVICE_STORE_PATH (default: that of the server)")
	})
	if c == nil {
		return code
	}
	// Settings that only matter for running a node may be wrong here.
	settings, _, err := config.Load(nil, p.getenv)
	if err != nil {
		return p.fail(err)
	}
	server := &settings.Server
	if nodeID != "" {
		server.NodeID = nodeID
	}
	file, err := os.Open(c.file)
	if err != nil {
		return p.fail(err)
	}
	defer file.Close()
	restored, err := quorate.Restore(server, file, hclog.NewNullLogger())
	if err != nil {
		return p.fail(fmt.Errorf("restore %s: %w", c.file, err))
	}
	fmt.Fprintf(p.stdout, "restored %s to %s\nstart node %s on it to found cluster %s\n",
		c.file, server.Storage.Path, nodeOf(restored.ServerID), restored.ClusterID)
	return exitOK
}

func (p *process) printSummary(s *backup.Summary, asJSON bool) int {
	if asJSON {
		enc := json.NewEncoder(p.stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(s); err != nil {
			return p.fail(fmt.Errorf("print summary: %w", err))
		}
		return exitOK
	}
	fmt.Fprintf(p.stdout, "cluster %s, asked of %s at %s, quorate %s, %d bytes\n\n", s.ClusterID, s.NodeID,
		time.UnixMilli(s.CreatedMillis).UTC().Format(time.RFC3339), s.Version, s.Size)
	t := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "GROUP\tINDEX\tTERM\tNODE\tBYTES\tITEMS\tRECORDS\tKEYS")
	for _, g := range s.Parts {
		items, records, keys := "-", "-", "-" // not counted
		if g.Items > 0 {
			items, records, keys = fmt.Sprint(g.Items), fmt.Sprint(g.Records), fmt.Sprint(g.Keys)
		}
		fmt.Fprintf(t, "%d\t%d\t%d\t%s\t%d\t%s\t%s\t%s\n", g.Group, g.Index, g.Term, nodeOf(g.Node), g.Bytes, items, records, keys)
	}
	_ = t.Flush()
	return exitOK
}
