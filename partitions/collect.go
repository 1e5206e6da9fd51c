package partitions

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/raftnode"
)

// collectBatch is how many tombstones one command drops.
const collectBatch = 256

// Horizon is what clients that sync must know of collected tombstones, over all groups
// of the cluster. The zero value says that nothing was collected.
type Horizon struct {
	// PrunedMillis is the time up to which no tombstones are left.
	PrunedMillis int64
	// CollectedMillis is when the newest tombstone came that was collected.
	CollectedMillis int64
	// Epoch is the time in seconds before which no tombstone comes any more: whoever was
	// then shown the state of this node knows all tombstones from before it.
	Epoch int64
}

// Missed reports whether a client that knows all tombstones from before epoch may have
// missed one that is collected.
func (h Horizon) Missed(epoch int64) bool {
	return h.CollectedMillis > 0 && epoch*1000 <= h.CollectedMillis
}

// Horizon returns the horizon. That of a group that is held elsewhere may be older than the
// state that a read shows, by two rounds of collecting. It may ask other nodes, and blocks
// for as long as horizonTime for a group then. The error is ErrUnavailable: what was
// collected is not known.
func (r *Router) Horizon() (h Horizon, err error) {
	groups := r.groups()
	for group := uint32(1); group <= groups; group++ {
		g, err := r.groupHorizon(group)
		if err != nil {
			return Horizon{}, err
		}
		if group == 1 {
			h.PrunedMillis, h.Epoch = g.PrunedMillis, g.ClosedMillis/1000
		}
		h.PrunedMillis, h.Epoch = min(h.PrunedMillis, g.PrunedMillis), min(h.Epoch, g.ClosedMillis/1000)
		h.CollectedMillis = max(h.CollectedMillis, g.CollectedMillis)
	}
	return h, nil
}

// HorizonChanged registers fn to be called after tombstones were collected, until cancel
// is called. fn must not block.
func (r *Router) HorizonChanged(fn func()) (cancel func()) { return r.horizonWatchers.add(fn) }

// SetCollectInterval changes the pace of collecting tombstones.
func (r *Router) SetCollectInterval(d time.Duration) {
	if time.Duration(r.collectInterval.Swap(int64(d))) == d {
		return
	}
	select {
	case r.collectPaced <- struct{}{}:
	default: // who reads the earlier token sees the newer pace
	}
}

// Collect drops old tombstones of the groups that this node leads, at the pace of
// Config, until ctx ends. The clock of the leader decides what is old; what was decided
// is in the log.
func (r *Router) Collect(ctx context.Context) {
	ticker := time.NewTicker(time.Duration(r.collectInterval.Load()))
	defer ticker.Stop()
	announced := int64(0) // the PrunedMillis that were told
	for {
		select {
		case <-ticker.C:
		case <-r.collectPaced:
			ticker.Reset(time.Duration(r.collectInterval.Load()))
			continue
		case <-ctx.Done():
			return
		}
		through := r.deps.Physical() - r.cfg.CollectAge.Milliseconds()
		for group := uint32(1); group <= r.groups(); group++ {
			if !r.leads(group) {
				continue
			}
			if err := r.collectGroup(ctx, group, through); err != nil && ctx.Err() == nil {
				// The next round tries again, here or at the next leader.
				r.log.Debug("tombstones were not collected", "group", group, "err", err)
			}
		}
		r.askHorizons(ctx)
		// Clients drop what is older than PrunedMillis. The newest that was collected may be
		// younger, always so where leaders collect in turn and deletions go on.
		if h, err := r.Horizon(); err == nil && h.CollectedMillis > announced && h.PrunedMillis > announced {
			announced = h.PrunedMillis
			r.horizonWatchers.call()
		}
	}
}

// collectGroup drops the tombstones of one group that came up to throughMillis. Also
// without any it proposes, because that closes the time before.
func (r *Router) collectGroup(ctx context.Context, group uint32, throughMillis int64) error {
	replica, ok := r.deps.Groups.Replica(group)
	if !ok {
		return fmt.Errorf("group %d: %w", group, raftnode.ErrNotHere)
	}
	for {
		graves, err := replica.Graves(throughMillis, collectBatch)
		if err != nil {
			return err
		}
		c := command.Collect{Graves: graves}
		if len(graves) < collectBatch {
			c.ThroughMillis = max(throughMillis, 0)
		}
		proposal, err := r.deps.Groups.Propose(group, []raftnode.Command{command.EncodeCollect(c)})
		if err != nil {
			return err
		}
		if _, err := proposal.Wait(ctx); err != nil {
			return err
		}
		if len(graves) < collectBatch {
			return nil
		}
	}
}
