package ws

import (
	"context"
	"errors"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
	"github.com/quorate/quorate/transport/judge"
)

// setRoot answers ORMAP_SYNC_INIT; see syncRoot.
func (c *conn) setRoot(ctx context.Context, m *protocol.ORMapSyncInit) ([]syncAnswer, error) {
	if !c.queries.watch(c, m.MapName, c.srv.cfg.MaxSyncMaps) {
		return nil, errTooManyMaps
	}
	// The epoch must not be newer than the state that is shown with it.
	horizon, err := c.backend.Horizon()
	if err != nil {
		return nil, err
	}
	leaves, err := c.backend.Tree(ctx, c.session, m.MapName, merkle.Sets)
	if err != nil {
		return nil, err
	}
	root := &protocol.ORMapSyncRespRoot{
		MapName: m.MapName, RootHash: leaves.Root(), Timestamp: c.backend.Now(), CoveringEpoch: horizon.Epoch,
	}
	// A client without records, or with ours, cannot hold any that were removed.
	root.FullResync = m.RootHash != 0 && m.RootHash != root.RootHash && horizon.Missed(m.ClaimedEpoch-syncLag/1000)
	if root.FullResync && c.failed.Load() {
		// It would drop the writes that it was told to keep; it sends them again first.
		c.end(closeFlushed, protocol.CloseRetry, reasonPending)
		return nil, errClosed
	}
	c.syncs.setFresh(m.MapName, !root.FullResync)
	c.syncs.lists.begin(m.MapName)
	return c.syncs.withPrune(horizon, root), nil
}

// setFresh notes whether pushes of a map are taken.
func (s *syncer) setFresh(mapName string, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh == nil {
		s.fresh = map[string]bool{}
	}
	s.fresh[mapName] = fresh
}

// begun makes a map fresh that the client syncs from nothing.
func (s *syncer) begun(mapName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, told := s.fresh[mapName]; told {
		s.fresh[mapName] = true
	}
}

// freshMaps lists the observed-remove maps whose pushes are taken.
func (s *syncer) freshMaps() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, fresh := range s.fresh {
		if fresh {
			names = append(names, name)
		}
	}
	return names
}

// isFresh reports whether pushes of a map are taken.
func (s *syncer) isFresh(mapName string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fresh[mapName]
}

// setBucket answers ORMAP_MERKLE_REQ_BUCKET. Above the leaves it lists all children: a
// client looks for keys of its own only below nodes that are listed, and pushes them
// from the level above the leaves, where only those that exist are.
func (c *conn) setBucket(ctx context.Context, m *protocol.ORMapMerkleReqBucket, at partitions.LeafPlace,
) (answers []syncAnswer, next *partitions.LeafPlace, err error) {
	bucket, leaf, err := merkle.ParsePath(m.Path)
	if err != nil {
		return nil, nil, err
	}
	if m.Path == "" {
		// Whoever was told to begin anew has now dropped what it had.
		c.syncs.begun(m.MapName)
	}
	epoch := c.epoch()
	if !leaf {
		leaves, err := c.backend.Tree(ctx, c.session, m.MapName, merkle.Sets)
		if err != nil {
			return nil, nil, err
		}
		buckets := leaves.Children(m.Path, len(m.Path) < merkle.Digits-1)
		return answer(&protocol.ORMapSyncRespBuckets{MapName: m.MapName, Path: m.Path, Buckets: buckets}), nil, nil
	}
	var entries []protocol.OREntry
	size := 0
	place, end, err := c.backend.LeafSets(ctx, c.session, m.MapName, bucket, at, func(part protocol.OREntry) bool {
		size += part.Size()
		shown := c.visible(m.MapName, part)
		if len(shown.Records)+len(shown.Tombstones) > 0 { // a key of hidden records alone is hidden, too
			entries = append(entries, shown)
		}
		return size < leafFrameBytes
	})
	if err != nil {
		return nil, nil, err
	}
	if !end {
		next = &place
	}
	// The client pushes what it has under the keys of each frame.
	for _, part := range leafFrames(entries, c.syncs.lists.frame(m.MapName, entries)) {
		leaf := &protocol.ORMapSyncRespLeaf{MapName: m.MapName, Path: m.Path, Entries: part, CoveringEpoch: epoch}
		answers = append(answers, syncAnswer{m: leaf})
	}
	return answers, next, nil
}

// epoch is that which covers what is read after it is asked for; 0, which covers nothing, if
// it is not known.
func (c *conn) epoch() int64 {
	horizon, err := c.backend.Horizon()
	if err != nil {
		return 0
	}
	return horizon.Epoch
}

// errTooManyKeys refuses a diff of more than one answer holds.
var errTooManyKeys = &judge.Refusal{Code: protocol.CodeTooLarge, Reason: "keys hold too much for one answer, ask for fewer"}

// setDiff answers ORMAP_DIFF_REQUEST: one entry per key, in the order asked for.
func (c *conn) setDiff(ctx context.Context, m *protocol.ORMapDiffRequest) ([]syncAnswer, error) {
	epoch := c.epoch()
	entries, err := c.backend.Sets(ctx, c.session, m.MapName, m.Keys, c.srv.cfg.MaxResponseBytes)
	if errors.Is(err, partitions.ErrTooMuch) {
		return nil, errTooManyKeys
	}
	if err != nil {
		return nil, err
	}
	for i := range entries {
		entries[i] = c.visible(m.MapName, entries[i])
	}
	return answer(&protocol.ORMapDiffResponse{MapName: m.MapName, Entries: entries, CoveringEpoch: epoch}), nil
}

// receivePush handles ORMAP_PUSH_DIFF: the client's records under some keys, and with
// each of them all tags that it knows to be removed from the map. It has no answer but
// an ERROR if something of it is refused. Once removals were collected, it is passed over
// unless the client has begun to sync the map: it might bring back what was removed.
func (c *conn) receivePush(m *protocol.ORMapPushDiff, size int) {
	if r := c.checkPush(m); r.Refused() {
		c.reply(failureOf(m, r.Code, r.Reason))
		return
	}
	if !c.syncs.isFresh(m.MapName) {
		switch horizon, err := c.backend.Horizon(); {
		case err != nil:
			c.end(closeFlushed, protocol.CloseRetry, reasonUnread)
			return
		case horizon.CollectedMillis > 0:
			c.srv.metrics.limit("stale_push")
			return
		}
	}
	if !c.takeSlot() {
		return
	}
	if err := c.srv.gate.enter(c.ctx, size); err != nil {
		c.leaveSlot()
		c.srv.metrics.limit("overload")
		c.reply(failureOf(m, protocol.CodeOverloaded, err.Error()))
		return
	}
	c.srv.workers.Go(func() {
		defer c.leaveSlot()
		defer c.srv.gate.leave(size)
		c.bringPush(m)
	})
}

func (c *conn) checkPush(m *protocol.ORMapPushDiff) judge.Refusal {
	if r := judge.Map(m.MapName); r.Refused() {
		return r
	}
	for i := range m.Entries {
		e := &m.Entries[i]
		if r := judge.Key(e.Key); r.Refused() {
			return r
		}
		for j := range e.Records {
			if r := c.srv.limits.ORRecord(&e.Records[j]); r.Refused() {
				return r
			}
		}
		for _, tag := range e.Tombstones {
			if r := judge.Tag(tag); r.Refused() {
				return r
			}
		}
	}
	return judge.Refusal{}
}

// bringPush brings a push to the cluster: first what is removed, so that no record that
// another entry of the push knows to be gone shows up in between.
func (c *conn) bringPush(m *protocol.ORMapPushDiff) {
	ctx, cancel := context.WithTimeout(c.srv.base, c.srv.cfg.OperationTimeout)
	defer cancel()
	ops, tags := c.pushedOps(m)
	refused := false
	for len(ops) > 0 {
		part := ops[:min(len(ops), protocol.MaxBatchItems)]
		ops = ops[len(part):]
		verdicts, err := c.writePermitted(ctx, m, part)
		if err != nil {
			// The client pushes again when it syncs next.
			c.srv.log.Debug("push was not confirmed", "conn", c.id, "map", m.MapName, "ops", len(part), "err", err)
			c.srv.metrics.operations(serviceWrite, "unknown", len(part), 0)
			return
		}
		refused = refused || len(verdicts) < len(part) // what is not permitted has none
		for _, v := range verdicts {
			if v.Refused() {
				refused = true
				c.reply(failureOf(m, v.Code, v.Reason))
				break
			}
		}
		c.srv.metrics.operations(serviceWrite, "ok", len(part), 0)
	}
	if !refused {
		c.syncs.lists.took(m.MapName, tags)
	}
}

// pushedOps are the operations that a push amounts to, and the removed tags that it has.
func (c *conn) pushedOps(m *protocol.ORMapPushDiff) (ops []partitions.Op, tags []string) {
	seen := map[string]bool{}
	for i := range m.Entries {
		for _, tag := range m.Entries[i].Tombstones {
			if !seen[tag] {
				seen[tag] = true
				tags = append(tags, tag)
			}
		}
	}
	for _, tag := range c.backend.UnknownRemovals(m.MapName, c.syncs.lists.untaken(m.MapName, tags)) {
		ops = append(ops, partitions.Op{Map: m.MapName, Remove: tag, Homeless: true})
	}
	for i := range m.Entries {
		e := &m.Entries[i]
		for j := range e.Records {
			if rec := &e.Records[j]; !seen[rec.Tag] {
				ops = append(ops, partitions.Op{Map: m.MapName, Key: e.Key, Add: rec})
			}
		}
	}
	return ops, tags
}
