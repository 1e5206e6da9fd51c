// Package locks brings the locks of clients to their groups. On the node that a client is
// connected to (its gateway) it asks for locks, waits for their grant, and ends what a lost
// connection leaves behind. On the leader of a group it watches the leases and the gateways
// by the monotonic clock, and proposes the end of those that ran out.
//
// Everything is decided in the log. A notice that is lost, late or repeated costs time and
// nothing else, and a lock never ends early: a deadline begins when the leader sees what it
// belongs to, stands still while the process does, and begins anew with each leader (C. Gray,
// D. Cheriton, "Leases", SOSP 1989).
package locks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/partitions/notice"
)

// Errors of Service calls.
var (
	// ErrNotGranted: the lock was not free in time; the request has ended.
	ErrNotGranted = errors.New("the lock was not granted in time")
	// ErrUnreachable: the group of the lock did not say in time whether it is free. The
	// request has ended, or is about to be.
	ErrUnreachable = errors.New("the lock cannot be reached now")
	// ErrEnded: the session or its node was ended meanwhile; the request has, too.
	ErrEnded = errors.New("the request for the lock was ended")
	// ErrNoCluster: the node does not belong to a cluster yet; nothing was asked for.
	ErrNoCluster = errors.New("the node does not belong to a cluster yet")
	// ErrFull: too many wait for the lock, or the session has too many locks.
	ErrFull = errors.New("too many wait for the lock, or the connection has too many locks")
)

// Replica is the local state of a group; *fsm.Machine is one.
type Replica interface {
	Applied() (index, term uint64)
	Lock(name string) *lock.Lock
	LockStatus(name string, req lock.Request) lock.Outcome
	Locks() []string
	Gateways() map[string]uint64
}

// Config tunes a Service. Use DefaultConfig and set Gateway.
type Config struct {
	// Gateway names this run of the node. No other run may have the name. Required.
	Gateway string
	// BeatInterval is the pace at which a gateway with locks says that it lives, and
	// SilenceLimit how long a leader waits for it.
	BeatInterval, SilenceLimit time.Duration
	// Tick is the grain of deadlines. A tick that is late by more than Stall means that
	// the process was stopped: that time does not count.
	Tick, Stall time.Duration
	// PollInterval is how often a waiting request asks the leader if this node has no
	// replica of the group.
	PollInterval time.Duration
	// Margin is how long before the end of its patience a request is given up, so that no
	// grant comes too late for the client; of a short patience it is a quarter.
	Margin time.Duration
}

// DefaultConfig is the configuration for production, without Gateway.
func DefaultConfig() Config {
	return Config{
		BeatInterval: 10 * time.Second, SilenceLimit: 30 * time.Second,
		Tick: 100 * time.Millisecond, Stall: 250 * time.Millisecond,
		PollInterval: 250 * time.Millisecond, Margin: 500 * time.Millisecond,
	}
}

// Deps are the collaborators of a Service. All are required.
type Deps struct {
	Logger hclog.Logger
	Board  *notice.Board
	// Groups is the number of groups, and GroupOf the group of a lock; both are zero before
	// the node belongs to a cluster.
	Groups  func() uint32
	GroupOf func(name string) uint32
	// Replica is the local replica of a group, if there is one.
	Replica func(group uint32) (Replica, bool)
	// Leads reports whether the local replica leads the group.
	Leads func(group uint32) bool
	// Submit brings a command to the leader of its group and returns its result. An error
	// leaves open whether it was applied or will be, unless Refused says otherwise.
	Submit func(ctx context.Context, group uint32, cmd command.Raw) (command.Result, error)
	// Refused reports whether an error of Submit promises that nothing was proposed.
	Refused func(err error) bool
}

// Service is the locks as one node sees them. It is safe for concurrent use.
type Service struct {
	cfg      Config
	deps     Deps
	sessions atomic.Uint64
	requests atomic.Uint64

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	// mu protects the fields below. groups is how many sessions have to do with locks of
	// each group.
	mu     sync.Mutex
	closed bool
	groups map[uint32]int
}

// New returns a Service that watches leases and gateways and says that this one lives,
// until Close.
func New(cfg Config, deps Deps) *Service {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Service{cfg: cfg, deps: deps, ctx: ctx, cancel: cancel, groups: map[uint32]int{}}
	k := &keeper{service: s, groups: map[uint32]*tenure{}, noted: map[noted]struct{}{}}
	s.spawn(k.run)
	s.spawn(s.beat)
	return s
}

// Close ends the background work and waits for it. Calling it again does nothing.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
}

// spawn runs fn as background work that Close waits for, unless the Service is closed.
func (s *Service) spawn(fn func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.work.Go(func() { fn(s.ctx) })
	}
}

// End releases all that the session holds and ends its requests. It blocks until that is
// decided, or ctx ends, or it fails. Then it may be called again; otherwise the silence of
// this node ends the session, when it is over.
func (s *Service) End(ctx context.Context, session *Session) error {
	session.mu.Lock()
	session.ended = true
	groups := slices.Collect(maps.Keys(session.groups))
	session.mu.Unlock()
	var work sync.WaitGroup
	failed := make(chan error, len(groups))
	for _, group := range groups {
		work.Go(func() {
			if err := s.endIn(ctx, session, group); err != nil {
				failed <- fmt.Errorf("end session in group %d: %w", group, err)
			}
		})
	}
	work.Wait()
	close(failed)
	return <-failed
}

// Leave ends a session like End, and if that fails goes on in the background until Close.
func (s *Service) Leave(ctx context.Context, session *Session) {
	if s.End(ctx, session) == nil {
		return
	}
	s.spawn(func(ctx context.Context) {
		for s.End(ctx, session) != nil && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(s.cfg.PollInterval):
			}
		}
	})
}

func (s *Service) endIn(ctx context.Context, session *Session, group uint32) error {
	cmd := command.EncodeLockSession(command.KindEndSession, command.LockSession{Session: session.id})
	if _, err := s.submit(ctx, group, cmd); err != nil {
		return err
	}
	session.mu.Lock()
	defer session.mu.Unlock()
	if _, entered := session.groups[group]; !entered {
		return nil
	}
	delete(session.groups, group)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[group]--; s.groups[group] == 0 {
		delete(s.groups, group)
	}
	return nil
}

// submit brings a command that may be repeated to its group, again as long as nothing
// was proposed.
func (s *Service) submit(ctx context.Context, group uint32, cmd command.Raw) (command.Result, error) {
	for {
		res, err := s.deps.Submit(ctx, group, cmd)
		if err == nil || !s.deps.Refused(err) {
			return res, err
		}
		select {
		case <-ctx.Done():
			return res, err
		case <-time.After(s.cfg.Tick):
		}
	}
}

// beat says at its pace that this node lives, to the groups that need to know.
func (s *Service) beat(ctx context.Context) {
	ticker := time.NewTicker(s.cfg.BeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		groups := slices.Collect(maps.Keys(s.groups))
		s.mu.Unlock()
		for _, group := range groups {
			s.spawn(func(ctx context.Context) { s.beatGroup(ctx, group) })
		}
	}
}

func (s *Service) beatGroup(ctx context.Context, group uint32) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.BeatInterval)
	defer cancel()
	m := command.LockSession{Session: lock.Session{Gateway: s.cfg.Gateway}}
	if _, err := s.submit(ctx, group, command.EncodeLockSession(command.KindBeat, m)); err != nil {
		s.deps.Logger.Debug("gateway was not heard", "group", group, "err", err)
	}
}
