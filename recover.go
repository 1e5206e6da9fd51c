package quorate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol/hlc"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/membership"
	"github.com/quorate/quorate/raftnode/mux"
)

const (
	// leftOutTokens is how many fencing tokens a recovery leaves out in each group: more
	// than a lost majority can have given since the survivor heard of it.
	leftOutTokens = 1 << 32
	// answerTimeout bounds asking the other members whether they are really gone.
	answerTimeout = 3 * time.Second
)

// Recover makes the stopped node that cfg describes the only member of its cluster, under
// another cluster id, or only reports what it has. Settings beside storage and secret are
// not used. Otherwise as RecoverNode.
func Recover(ctx context.Context, cfg ServerConfig, opts RecoverOptions, logger hclog.Logger) (*Recovery, error) {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	if cfg.Storage.Backend == BackendNull {
		return nil, fmt.Errorf("%w: the null backend keeps nothing", ErrNothingToRecover)
	}
	if _, err := os.Stat(cfg.Storage.Path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNothingToRecover, err)
	}
	store, err := cfg.openStore(logger)
	if err != nil {
		return nil, err
	}
	deps := NodeDeps{Logger: logger, LogFS: cfg.logFS(), Store: store, Physical: unixMillis}
	return RecoverNode(ctx, cfg.nodeConfig(0), deps, opts)
}

// RecoverNode is Recover for a bare Node with the same cfg and deps as OpenNode has; the
// node's id is that of the store. Everything that the node has stays, also what was never
// acknowledged; what only the others had is gone. A call that failed or was killed is
// repeated; the node does not start before one has succeeded. The report is also returned
// with the errors ErrMembersAnswer, ErrGroupsMissing and ErrNoTokens, with which nothing
// was changed, as with ErrNothingToRecover. Other errors are those of the store and the
// log.
func RecoverNode(ctx context.Context, cfg NodeConfig, deps NodeDeps, opts RecoverOptions) (*Recovery, error) {
	r := &recoverer{cfg: cfg, deps: deps, log: deps.Logger}
	if err := r.open(); err != nil {
		return nil, errors.Join(err, r.close())
	}
	report, err := r.run(ctx, opts)
	return report, errors.Join(err, r.close())
}

// recoverer is one call of RecoverNode.
type recoverer struct {
	cfg  NodeConfig
	deps NodeDeps
	log  hclog.Logger
	wal  *logstore.Log
	// flusher never runs: what is applied here is not written.
	flusher  *writebehind.Flusher
	survivor membership.Survivor
	groups   []*heldGroup
	state    *system.State
}

// heldGroup is one group with its state as the whole log leaves it.
type heldGroup struct {
	id      uint32
	machine *fsm.Machine
	*raftnode.Survivor
}

func (r *recoverer) open() (err error) {
	r.survivor, err = membership.ReadSurvivor(r.deps.Store)
	if errors.Is(err, membership.ErrNoCluster) {
		return fmt.Errorf("%w: %w", ErrNothingToRecover, err)
	}
	if err != nil {
		return err
	}
	if r.wal, err = logstore.Open(r.cfg.Log, logstore.Deps{Logger: r.log.Named("logstore"), FS: r.deps.LogFS}); err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	r.flusher, err = writebehind.New(r.cfg.Flusher, writebehind.Deps{Logger: r.log, Store: r.deps.Store})
	return err
}

func (r *recoverer) close() error {
	var errs []error
	for _, g := range r.groups {
		errs = append(errs, g.machine.Close())
	}
	if r.wal != nil {
		errs = append(errs, r.wal.Close())
	}
	return errors.Join(append(errs, r.deps.Store.Close())...)
}

func (r *recoverer) run(ctx context.Context, opts RecoverOptions) (*Recovery, error) {
	if err := r.survey(); err != nil {
		return nil, err
	}
	report := r.report()
	if err := r.askOthers(ctx, report); err != nil {
		return report, err
	}
	if !opts.Confirm {
		return report, nil
	}
	if err := r.permitted(report, opts); err != nil {
		return report, err
	}
	clusterID, err := membership.BeginRecovery(r.deps.Store)
	if err != nil {
		return report, err
	}
	report.NewClusterID, report.Begun = clusterID, true
	if err := r.rewrite(clusterID); err != nil {
		return report, err
	}
	if err := membership.EndRecovery(r.deps.Store); err != nil {
		return report, err
	}
	report.Begun, report.Done = false, true
	return report, nil
}

// survey opens every group of the cluster.
func (r *recoverer) survey() error {
	if err := r.openGroup(raftnode.SystemGroup); err != nil {
		return err
	}
	r.state = r.groups[0].machine.Cluster()
	if r.state.Genesis == nil {
		return fmt.Errorf("%w: the node never heard of its cluster's documents", ErrNothingToRecover)
	}
	for group := uint32(1); group <= r.state.Genesis.Groups; group++ {
		if err := r.openGroup(group); err != nil {
			return err
		}
	}
	return nil
}

func (r *recoverer) openGroup(group uint32) error {
	machine, err := fsm.Open(fsm.DefaultConfig(group), fsm.Deps{Logger: r.log, Store: r.deps.Store, Flusher: r.flusher})
	if err != nil {
		return err
	}
	g := &heldGroup{id: group, machine: machine}
	r.groups = append(r.groups, g)
	g.Survivor, err = raftnode.Survey(group, r.wal.Group(group), machine, r.log)
	return err
}

// rewrite makes this node the only voter of all groups, and the only member.
func (r *recoverer) rewrite(clusterID string) error {
	clock := hlc.New(r.survivor.NodeID, r.deps.Physical)
	for _, g := range r.groups {
		cmd := command.EncodeRaiseTokens(command.RaiseTokens{By: r.tokensBehind(g)})
		if g.id == raftnode.SystemGroup {
			cmd = command.EncodeRecover(command.Recover{
				ClusterID: clusterID, Survivor: string(r.survivor.ID()), SinceMillis: r.deps.Physical(),
			})
		}
		if err := g.GoOnAlone(r.survivor.ID(), clock, []command.Raw{cmd}); err != nil {
			return err
		}
	}
	return nil
}

// tokensBehind is how many tokens are left out in a group. One that begins anew has given
// none, but may have given as many as any other before.
func (r *recoverer) tokensBehind(g *heldGroup) uint64 {
	remains := g.Remains()
	if remains.Held() {
		return leftOutTokens
	}
	return r.greatestToken() + leftOutTokens
}

// greatestToken is that of all groups.
func (r *recoverer) greatestToken() (token uint64) {
	for _, g := range r.groups {
		token = max(token, g.machine.GreatestToken())
	}
	return token
}

// permitted checks what a recovery could not take back.
func (r *recoverer) permitted(report *Recovery, opts RecoverOptions) error {
	for _, m := range report.Members {
		if m.Answers {
			return fmt.Errorf("%w: %s at %s", ErrMembersAnswer, m.NodeID, m.PeerAddr)
		}
	}
	for _, g := range report.Groups {
		if !g.Held && !opts.StartEmpty {
			return fmt.Errorf("%w: group %d", ErrGroupsMissing, g.Group)
		}
	}
	if r.greatestToken() > fsm.MaxToken-leftOutTokens {
		return ErrNoTokens
	}
	self, known := r.state.Member(string(r.survivor.ID()))
	if !known || self.Status == system.StatusRemoved {
		return fmt.Errorf("%w: the node is no member of its cluster", ErrNothingToRecover)
	}
	return nil
}

// askOthers notes which of the other members run. Who they are they say before they look
// at the question.
func (r *recoverer) askOthers(ctx context.Context, report *Recovery) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	cfg := mux.DefaultConfig()
	cfg.Secret = r.cfg.Mux.Secret
	m, err := mux.Open(cfg, mux.Deps{Network: r.deps.Network, Logger: r.log})
	if err != nil {
		return err
	}
	defer m.Close()
	var wg sync.WaitGroup
	for i := range report.Members {
		member := &report.Members[i]
		wg.Go(func() {
			_, peer, _ := m.CallAddr(ctx, member.PeerAddr, methodStatus, nil)
			member.Answers = string(peer.ID) == member.ServerID
		})
	}
	wg.Wait()
	return nil
}
