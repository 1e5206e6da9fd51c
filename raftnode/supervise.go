package raftnode

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// retryPause is how long a new leader waits before it tries its barrier again.
const retryPause = 20 * time.Millisecond

// minTrailingLogs is the least number of entries that a log of large entries keeps:
// many times what is in flight.
const minTrailingLogs = 256

// supervise watches the instance until the group is stopped: it follows leadership
// and replaces an instance that is stuck.
func (g *Group) supervise() {
	var promoting uint64
	var truncating atomic.Bool
	for {
		in := g.instance()
		select {
		case <-in.changed:
			if term, leads := in.leads(); leads && term != promoting {
				promoting = term
				g.running.Go(func() { g.promote(in, term) })
			}
			g.noteLeader(in)
			g.host.signal()
		case <-in.full:
			if truncating.CompareAndSwap(false, true) {
				g.running.Go(func() {
					defer truncating.Store(false)
					g.truncate(in)
				})
			}
		case reason := <-in.broken:
			g.logger.Warn("raft instance is stuck, replacing it", "reason", reason)
			if err := g.replaceInstance(in); err != nil {
				g.host.fail(err)
				<-g.stop
				return
			}
			promoting = 0
		case <-g.stop:
			return
		}
	}
}

// promote makes a new leader ready: everything that its predecessors committed must
// be applied, and the clock be past all their stamps, before it proposes.
func (g *Group) promote(in *instance, term uint64) {
	for {
		now, leads := in.leads()
		if !leads || now != term {
			return
		}
		f := in.raft.Barrier(g.host.cfg.ElectionTimeout)
		err := in.await(f)
		in.noteRefusal(err, 3*g.host.cfg.ElectionTimeout)
		if err == nil {
			g.promoted(in, term, f)
			return
		}
		if !errors.Is(err, raft.ErrLeadershipTransferInProgress) && !errors.Is(err, raft.ErrEnqueueTimeout) {
			return
		}
		select {
		case <-time.After(retryPause):
		case <-in.stop:
			return
		}
	}
}

func (g *Group) promoted(in *instance, term uint64, barrier raft.Future) {
	// The barrier may have been taken in a later term, which has its own promotion.
	if now, leads := in.leads(); !leads || now != term {
		return
	}
	g.host.deps.Clock.Advance(g.machine.ClockFloor())
	if f, ok := barrier.(raft.IndexFuture); ok {
		g.applier.applied.raise(f.Index())
	}
	g.ready.Store(term)
	g.counters.elected.Add(1)
	g.logger.Info("leads the group", "term", term, "index", g.applier.applied.load())
	g.host.signal()
}

// truncate shortens a log that gathered many bytes, where entries are large also to
// fewer entries than usual.
func (g *Group) truncate(in *instance) {
	cfg := &g.host.cfg
	settings := in.raft.ReloadableConfig()
	settings.TrailingLogs = min(cfg.TrailingLogs,
		max(minTrailingLogs, uint64(cfg.SnapshotBytes/max(1, in.log.mean.Load()))))
	err := in.raft.ReloadConfig(settings)
	if err == nil {
		err = g.Snapshot(g.ctx)
	}
	if err != nil && g.ctx.Err() == nil {
		g.logger.Warn("log was not truncated", "err", err)
	}
}

// noteLeader counts changes of the leader as this replica sees them.
func (g *Group) noteLeader(in *instance) {
	now := in.leadership()
	id, term := now.Leader, now.Term
	if id == "" || (id == g.counters.leader && term == g.counters.leaderTerm) {
		return
	}
	g.counters.leader, g.counters.leaderTerm = id, term
	g.counters.leaderChanges.Add(1)
}

// replaceInstance ends the instance and starts another on the same log and state.
// What was in flight is answered as unknown.
func (g *Group) replaceInstance(old *instance) error {
	old.close()
	g.ready.Store(0)
	if err := reconcile(g.log, g.machine.Flushed(), g.logger); err != nil {
		return fmt.Errorf("replace raft instance of group %d: %w", g.id, err)
	}
	in, err := g.newInstance()
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.in = in
	g.mu.Unlock()
	g.counters.replaced.Add(1)
	return nil
}

// close ends the group: nothing more is proposed or applied, and all goroutines
// have ended when it returns.
func (g *Group) close() error {
	close(g.stop)
	g.cancel()
	// supervise ends first, so that it cannot replace the instance any more.
	g.supervising.Wait()
	g.batcher.refuse()
	g.instance().close()
	g.batcher.wait()
	g.running.Wait()
	if err := g.machine.Close(); err != nil {
		return fmt.Errorf("close state machine of group %d: %w", g.id, err)
	}
	return nil
}

// installed is told that the state reaches a received snapshot; replaced tells that
// it was behind before. The library empties the log next.
func (g *Group) installed(in *instance, meta *raft.SnapshotMeta, replaced bool) {
	g.counters.installed.Add(1)
	last, err := g.log.LastIndex()
	if err != nil {
		return // The next access through the guarded log stops the node.
	}
	if last >= meta.Index {
		// Entries behind the snapshot that belong to the same history stay: the leader
		// may count them as stored here, and some may be committed.
		var entry raft.Log
		err := g.log.GetLog(meta.Index, &entry)
		if !replaced || err == nil && entry.Term == meta.Term {
			in.log.keepAbove(meta.Index)
		}
		// The library goes on with the last index of the log that it removes, so it
		// refuses what the leader sends next, which sends another snapshot, for ever
		// (hashicorp/raft issue 697).
		in.replace("snapshot within the log")
	}
	if g.installs.installed(time.Now()) {
		in.replace("snapshots are installed in a loop")
	}
}
