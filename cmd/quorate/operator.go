package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/cmd/quorate/config"
)

const (
	// callTimeout bounds status and members; a node that does not answer within it
	// is not well.
	callTimeout = 10 * time.Second
	// transferTimeout bounds transfer, which waits for an election.
	transferTimeout = 20 * time.Second
	// leaveTimeout bounds leave, which waits for other nodes to take over.
	leaveTimeout = 2 * time.Minute
	// scrubTimeout bounds scrub, which reads everything at a limited rate.
	scrubTimeout = 12 * time.Hour
)

// target is the node that an operator command talks to.
type target struct {
	addr, secret string
	json         bool
	// args are the arguments that are no flags.
	args []string
}

// parseTarget reads the flags of an operator command. The second result is the
// exit code when the command cannot go on.
func (p *process) parseTarget(name string, args []string, withJSON bool, more ...func(*flag.FlagSet)) (*target, int) {
	return p.parseArguments(name, "", args, 0, withJSON, more...)
}

// parseArguments is parseTarget for a command that takes up to most arguments, which
// may stand before the flags; usage names them.
func (p *process) parseArguments(name, usage string, args []string, most int, withJSON bool, more ...func(*flag.FlagSet)) (*target, int) {
	t := &target{}
	for len(args) > 0 && len(t.args) < most && !strings.HasPrefix(args[0], "-") {
		t.args, args = append(t.args, args[0]), args[1:]
	}
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&t.addr, "addr", "", "cluster address of the node, `host:port` (default: the node that runs on SERVICE_STORE_PATH)")
	if withJSON {
		fs.BoolVar(&t.json, "json", false, "print JSON")
	}
	for _, add := range more {
		add(fs)
	}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(p.stdout, "Usage: quorate %s%s [flags]\n", name, usage)
		fs.SetOutput(p.stdout)
		fs.PrintDefaults()
		return nil, exitOK
	case err != nil:
		return nil, p.usageError(name + ": " + err.Error())
	case len(t.args)+fs.NArg() > most:
		return nil, p.usageError(fmt.Sprintf("%s: unexpected argument %q", name, fs.Args()[most-len(t.args)]))
	}
	t.args = append(t.args, fs.Args()...)
	if err := p.complete(t); err != nil {
		return nil, p.fail(err)
	}
	return t, exitOK
}

// complete takes from the environment what the server on this machine took: its
// secret and, unless an address is given, where it listens.
func (p *process) complete(t *target) error {
	// Settings that only matter for running a node may be wrong here.
	settings, _, err := config.Load(nil, p.getenv)
	if err != nil {
		return err
	}
	server := &settings.Server
	t.secret = server.Security.JWTSecret
	if t.addr != "" {
		return nil
	}
	file := server.AddressFile()
	if file == "" {
		return errors.New("--addr is needed: the null backend leaves no address file")
	}
	addr, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("no node runs on %s here: start one, or name its cluster address with --addr", server.Storage.Path)
	}
	if err != nil {
		return fmt.Errorf("read the node's address: %w", err)
	}
	t.addr = strings.TrimSpace(string(addr))
	return nil
}

func runStatus(p *process, args []string) int {
	return p.withStatus("status", args, writeStatus)
}

func runMembers(p *process, args []string) int {
	return p.withStatus("members", args, writeMembers)
}

// withStatus asks the node for its status and prints it with write, or as JSON.
func (p *process) withStatus(name string, args []string, write func(w io.Writer, s *quorate.Status)) int {
	t, code := p.parseTarget(name, args, true)
	if t == nil {
		return code
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	status, err := quorate.FetchStatus(ctx, t.addr, t.secret)
	if err != nil {
		return p.fail(err)
	}
	if !t.json {
		write(p.stdout, status)
		return exitOK
	}
	var v any = status
	if name == "members" {
		v = status.Members
	}
	enc := json.NewEncoder(p.stdout)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return p.fail(fmt.Errorf("print status: %w", err))
	}
	return exitOK
}

// runScrub exits with 1 when there is damage.
func runScrub(p *process, args []string) int {
	t, code := p.parseTarget("scrub", args, false)
	if t == nil {
		return code
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrubTimeout)
	defer cancel()
	result, err := quorate.RequestScrub(ctx, t.addr, t.secret)
	if err != nil {
		return p.fail(err)
	}
	fmt.Fprintf(p.stdout, "%d bytes read\n", result.Bytes)
	for _, line := range result.Damage {
		fmt.Fprintf(p.stdout, "damaged: %s\n", line)
	}
	if len(result.Damage) > 0 {
		return exitFailure
	}
	return exitOK
}

func runLeave(p *process, args []string) int {
	t, code := p.parseTarget("leave", args, false)
	if t == nil {
		return code
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	nodeID, err := quorate.RequestLeave(ctx, t.addr, t.secret)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("not left yet, it goes on; see quorate members: %w", err)
	}
	if err != nil {
		return p.fail(err)
	}
	fmt.Fprintf(p.stdout, "%s has left the cluster\n", nodeID)
	return exitOK
}

func runTransfer(p *process, args []string) int {
	t, code := p.parseArguments("transfer", " GROUP [NODE]", args, 2, false)
	if t == nil {
		return code
	}
	if len(t.args) == 0 {
		return p.usageError("transfer: the number of a group is missing")
	}
	group, err := strconv.ParseUint(t.args[0], 10, 32)
	if err != nil {
		return p.usageError(fmt.Sprintf("transfer: %q is not the number of a group", t.args[0]))
	}
	node := ""
	if len(t.args) > 1 {
		node = t.args[1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), transferTimeout)
	defer cancel()
	done, err := quorate.RequestTransfer(ctx, t.addr, t.secret, uint32(group), node)
	if err != nil {
		return p.fail(err)
	}
	if node != "" && node != done.To && node != nodeOf(done.To) {
		return p.fail(fmt.Errorf("another node was elected: %s leads group %d in term %d", nodeOf(done.To), group, done.Term))
	}
	fmt.Fprintf(p.stdout, "%s leads group %d in term %d\n", nodeOf(done.To), group, done.Term)
	return exitOK
}

func writeStatus(w io.Writer, s *quorate.Status) {
	fmt.Fprintf(w, "node %s (%s), quorate %s, %s, %s, up %s\n", s.NodeID, s.ServerID, s.Version, s.Phase, s.Health,
		time.Duration(s.UptimeSeconds)*time.Second)
	fmt.Fprintf(w, "cluster %s, peers %s, clients %s\n\n", orNone(s.ClusterID), s.PeerAddr, s.ClientURL)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "GROUP\tROLE\tTERM\tLEADER\tCOMMIT\tAPPLIED\tFLUSHED\tLAG\tLOG\tVOTERS\tNONVOTERS\tDIGEST")
	for _, g := range s.Groups {
		fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%d\t%d\t%d\t%d\t%d-%d\t%s\t%s\t%s@%d\n", g.Group, g.Role, g.Term, orNone(nodeOf(g.Leader)),
			g.CommitIndex, g.AppliedIndex, g.FlushedIndex, g.Lag, g.FirstLog, g.LastLog, nodesOf(g.Voters), nodesOf(g.Nonvoters),
			g.Digest, g.DigestIndex)
	}
	_ = t.Flush()
	if s.LogDamage != "" {
		fmt.Fprintf(w, "the log is damaged: %s\n", s.LogDamage)
	}
	for _, g := range s.Groups {
		if g.Damage != "" {
			fmt.Fprintf(w, "group %d is damaged: %s\n", g.Group, g.Damage)
		}
		if g.SetAside > 0 {
			fmt.Fprintf(w, "group %d: damaged states that take space in the store: %d\n", g.Group, g.SetAside)
		}
	}
	fmt.Fprintln(w)
	writeMembers(w, s)
}

func writeMembers(w io.Writer, s *quorate.Status) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tSTATUS\tLEADS\tVOTES\tPEERS\tCLIENTS\tSERVER ID")
	for _, m := range s.Members {
		if m.Status == "removed" {
			continue // a tombstone; the JSON has it
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", m.NodeID, m.Status, m.Leads, m.Votes, orNone(m.PeerAddr), orNone(m.ClientURL), m.ServerID)
	}
	_ = t.Flush()
}

// nodeOf is the node id of a server id: what an operator chose.
func nodeOf(serverID string) string {
	node, _, _ := strings.Cut(serverID, "#")
	return node
}

func nodesOf(serverIDs []string) string {
	nodes := make([]string, len(serverIDs))
	for i, id := range serverIDs {
		nodes[i] = nodeOf(id)
	}
	return orNone(strings.Join(nodes, ","))
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
