package partitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/partitions/notice"
	"github.com/quorate/quorate/partitions/remote"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

// methodRead reads a group that another node holds, methodFollow has its changes; see
// package remote for the bodies.
const (
	methodRead   mux.Method = 35
	methodFollow mux.Method = 36
)

// newRemote makes the two ends of what nodes read from each other.
func (r *Router) newRemote() (*remote.Client, *remote.Server) {
	cfg := r.cfg.Remote
	client := remote.NewClient(cfg, remote.Deps{
		Logger: r.log.Named("remote"), Holders: r.holders,
		Held: func(group uint32) bool { _, held := r.deps.Groups.Replica(group); return held },
		Read: func(ctx context.Context, node string, body []byte) ([]byte, error) {
			return r.deps.Peers.Call(ctx, raftnode.ServerID(node), methodRead, body)
		},
		Follow: func(ctx context.Context, node string, body []byte) ([]byte, error) {
			return r.deps.Peers.Call(ctx, raftnode.ServerID(node), methodFollow, body)
		},
		Followed: func(s remote.Subject) bool {
			if s.Counter {
				return r.deps.Board.Watched(storage.SectionCounters, s.Name)
			}
			return r.deps.Hub.Follows(s.Name)
		},
		Deliver: func(c *fsm.Changes) {
			r.deps.Hub.Publish(c)
			r.deps.Board.Publish(c)
		},
	})
	server := remote.NewServer(cfg, remote.ServerDeps{
		Replica:     func(group uint32) (remote.Replica, bool) { return r.deps.Groups.Replica(group) },
		WaitApplied: r.deps.Groups.WaitApplied, Answer: r.answerHere, Tap: r.deps.Hub.Tap,
	})
	r.deps.Peers.Handle(methodRead, func(ctx context.Context, _ mux.Peer, body []byte) ([]byte, error) {
		return server.HandleRead(ctx, body)
	})
	r.deps.Peers.Handle(methodFollow, func(ctx context.Context, peer mux.Peer, body []byte) ([]byte, error) {
		return server.HandleFollow(ctx, string(peer.ID), body)
	})
	return client, server
}

// holders lists the other nodes that hold a group by the partition table: its leader
// first, those that are not alive last.
func (r *Router) holders(group uint32) []string {
	state := r.deps.Cluster()
	if state == nil || group == 0 || int(group) > len(state.Table.Groups) {
		return nil
	}
	alive := map[string]bool{}
	for i := range state.Members {
		m := &state.Members[i]
		alive[m.ID] = m.Status == system.StatusActive || m.Status == system.StatusJoining || m.Status == system.StatusLeaving
	}
	p := &state.Table.Groups[group-1]
	rank := func(id string) int {
		switch {
		case !alive[id]:
			return 2
		case id != p.Leader:
			return 1
		default:
			return 0
		}
	}
	list := slices.DeleteFunc(slices.Clone(p.Voters), func(id string) bool { return id == string(r.cfg.Self) })
	slices.SortStableFunc(list, func(a, b string) int { return rank(a) - rank(b) })
	return list
}

// readGroup calls fn with a reader of one group, in no older state than what s was
// acknowledged and what was shown on this node; s may be nil. It blocks until the state is
// that far, or ctx ends. Errors: ErrUnavailable, which names the group, those of fn.
func (r *Router) readGroup(ctx context.Context, s *Session, group uint32, fn func(group uint32, reader Reader) error) error {
	return r.readBy(ctx, s, group, new(sync.Mutex), fn)
}

// readBy is readGroup with a lock that is held while functions run which fn gives to its
// reader; where the group is held here, while all of fn runs.
func (r *Router) readBy(ctx context.Context, s *Session, group uint32, calls sync.Locker, fn func(group uint32, reader Reader) error) error {
	// The holder of the last read, or of the changes since, may have been ahead of this one.
	index := r.deps.Hub.Shown(group)
	if s != nil {
		index = max(index, s.index(group))
	}
	var reader Reader
	var shows func() uint64
	if replica, held := r.deps.Groups.Replica(group); held {
		if err := r.deps.Groups.WaitApplied(ctx, group, index); err != nil {
			return fmt.Errorf("%w: read of group %d: %w", ErrUnavailable, group, err)
		}
		calls.Lock()
		defer calls.Unlock()
		applied, _ := replica.Applied() // the read shows at least this much
		reader, shows = local{replica}, func() uint64 { return applied }
	} else {
		far := r.remote.NewReader(ctx, group, index, calls)
		reader, shows = far, far.Index
	}
	err := fn(group, reader)
	switch {
	case err == nil:
		r.deps.Hub.Show(group, shows())
		return nil
	case errors.Is(err, remote.ErrUnanswered):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return fmt.Errorf("read group %d: %w", group, err)
	}
}

// scatter is readGroup for all data groups, those that are held elsewhere at the same time.
// Where the group is held here, fn runs alone; elsewhere only the functions do that it gives
// to its reader. All groups are asked, also after an error.
func (r *Router) scatter(ctx context.Context, s *Session, fn func(group uint32, reader Reader) error) error {
	groups := r.groups()
	if groups == 0 {
		return errNoCluster
	}
	var calls sync.Mutex
	var work sync.WaitGroup
	errs := make([]error, groups)
	var here []uint32
	for group := uint32(1); group <= groups; group++ {
		if _, held := r.deps.Groups.Replica(group); held {
			here = append(here, group)
			continue
		}
		work.Go(func() { errs[group-1] = r.readBy(ctx, s, group, &calls, fn) })
	}
	for _, group := range here {
		errs[group-1] = r.readBy(ctx, s, group, &calls, fn)
	}
	work.Wait()
	return errors.Join(errs...)
}

// horizonTime is how long Horizon waits for groups that are held elsewhere.
const horizonTime = 2 * time.Second

// knownHorizon is what a holder said of a group, and when.
type knownHorizon struct {
	fsm.Horizon
	asked time.Time
}

// groupHorizon is the horizon of a group; of one that is held elsewhere, not older than
// two rounds of collecting. The error is ErrUnavailable.
func (r *Router) groupHorizon(group uint32) (fsm.Horizon, error) {
	if replica, held := r.deps.Groups.Replica(group); held {
		return replica.Horizon(), nil
	}
	r.mu.Lock()
	known, ever := r.horizons[group]
	r.mu.Unlock()
	if ever && time.Since(known.asked) < 2*r.cfg.CollectInterval {
		return known.Horizon, nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, horizonTime)
	defer cancel()
	if err := r.askHorizon(ctx, group); err != nil {
		return fsm.Horizon{}, fmt.Errorf("horizon: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.horizons[group].Horizon, nil
}

// askHorizon asks the holders of a group for its horizon. Horizons only grow.
func (r *Router) askHorizon(ctx context.Context, group uint32) error {
	asked := time.Now()
	return r.readGroup(ctx, nil, group, func(_ uint32, reader Reader) error {
		h, err := reader.Horizon()
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		old := r.horizons[group]
		r.horizons[group] = knownHorizon{fsm.Horizon{
			ClosedMillis:    max(h.ClosedMillis, old.ClosedMillis),
			PrunedMillis:    max(h.PrunedMillis, old.PrunedMillis),
			CollectedMillis: max(h.CollectedMillis, old.CollectedMillis),
		}, asked}
		return nil
	})
}

// askHorizons asks for the horizons of all groups that are held elsewhere.
func (r *Router) askHorizons(ctx context.Context) {
	var work sync.WaitGroup
	for group := uint32(1); group <= r.groups(); group++ {
		if _, held := r.deps.Groups.Replica(group); held {
			continue
		}
		work.Go(func() {
			if err := r.askHorizon(ctx, group); err != nil {
				r.log.Debug("horizon is not known", "group", group, "err", err)
			}
		})
	}
	work.Wait()
}

// WatchCounter returns a watcher of a counter, whose first notice comes at once where the
// counter is held elsewhere. The caller closes it.
func (r *Router) WatchCounter(name string) *notice.Watcher {
	w := r.deps.Board.Watch(storage.SectionCounters, name)
	if _, held := r.deps.Groups.Replica(r.groupOf(name)); !held {
		// Whoever reads a watched counter follows it.
		w.Wake()
	}
	return w
}
