package raftnode

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// replayBatch is how many entries are given to the machine at a time.
const replayBatch = 256

// resume brings the replica from its log and its flushed state back to life.
func (g *Group) resume(first []raft.Server) error {
	if err := g.snapshots.spool.clear(); err != nil {
		return err
	}
	mark := g.machine.Flushed()
	if err := reconcile(g.log, mark, g.logger); err != nil {
		return err
	}
	if len(first) > 0 {
		if err := bootstrap(g.log, mark, first); err != nil {
			return err
		}
	}
	if err := g.applier.resume(); err != nil {
		return err
	}
	if err := g.replay(); err != nil {
		return err
	}
	in, err := g.newInstance()
	if err != nil {
		return err
	}
	g.in = in
	return nil
}

// replay applies what the log knows to be committed, so that readers here are not
// set back until a leader is elected. The library gives the machine the same entries
// again, which skips them.
func (g *Group) replay() error {
	last, err := g.log.LastIndex()
	if err != nil {
		return fmt.Errorf("read last index: %w", err)
	}
	last = min(last, g.log.CommitHint())
	begin := g.applier.applied.load()
	batch := make([]*raft.Log, 0, replayBatch)
	for index := begin + 1; index <= last; index++ {
		entry := new(raft.Log)
		if err := g.log.GetLog(index, entry); err != nil {
			return fmt.Errorf("read entry %d: %w", index, err)
		}
		if reachesMachine(entry) {
			batch = append(batch, entry)
		}
		if len(batch) == replayBatch || index == last && len(batch) > 0 {
			if _, err := g.applier.apply(batch); err != nil {
				return fmt.Errorf("replay up to entry %d: %w", index, err)
			}
			batch = batch[:0]
		}
	}
	if last > begin {
		g.applier.applied.raise(last)
		g.logger.Info("replayed the log", "from", begin+1, "index", last)
	}
	return nil
}
