package ws

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
	"github.com/quorate/quorate/transport/judge"
)

const (
	// syncBacklog is how many bytes may wait to be sent when the next sync request is
	// answered. A first sync is as fast as the client reads, and its heartbeats are
	// answered meanwhile.
	syncBacklog = 256 << 10
	// leafFrameBytes is the size about which a leaf is continued in another frame.
	leafFrameBytes = 512 << 10
	// leafFirstBytes is room for a small leaf.
	leafFirstBytes = 1 << 10
	// syncLag is, in milliseconds, how far what a node showed a client may have been
	// behind the time that it told the client.
	syncLag = 300_000
)

// syncer answers the sync requests of one connection in their order. A client asks for
// many leaves at once, so they wait here and not in tasks, which would keep the reader
// from its heartbeats. The goroutine that answers exists while requests wait.
type syncer struct {
	// mu protects the fields below.
	mu      sync.Mutex
	queue   []syncRequest
	bytes   int
	running bool
	// fresh holds the observed-remove maps that the client syncs, and whether its pushes
	// are taken: whether it is known to have missed no collected removal.
	fresh map[string]bool
	// lists are the client's lists of removed tags.
	lists tagLists
	// pruned is up to when the client was told to drop tombstones, in milliseconds.
	pruned int64

	// leafBytes is the size of the latest leaf; for the goroutine that answers.
	leafBytes int
}

// syncRequest is one request with what must be answered before it.
type syncRequest struct {
	m       protocol.Message
	size    int
	earlier <-chan struct{}
	// at is where in its leaf the answer begins.
	at partitions.LeafPlace
}

// receiveSync handles the requests of the delta sync of both kinds of maps.
func (c *conn) receiveSync(m protocol.Message, size int) {
	if r := checkSync(m); r.Refused() {
		c.reply(failureOf(m, r.Code, r.Reason))
		return
	}
	if !c.syncs.add(syncRequest{m: m, size: size, earlier: c.turns.last}, c) {
		c.srv.metrics.limit("syncs")
		// Clients do not ask again on a connection that stays.
		c.end(closeFlushed, protocol.CloseRetry, reasonSyncs)
	}
}

// checkSync judges what a sync request names.
func checkSync(m protocol.Message) judge.Refusal {
	mapName, path, keys := "", "", []string(nil)
	switch m := m.(type) {
	case *protocol.SyncInit:
		mapName = m.MapName
	case *protocol.ORMapSyncInit:
		mapName = m.MapName
	case *protocol.MerkleReqBucket:
		mapName, path = m.MapName, m.Path
	case *protocol.ORMapMerkleReqBucket:
		mapName, path = m.MapName, m.Path
	case *protocol.ORMapDiffRequest:
		mapName, keys = m.MapName, m.Keys
	}
	if r := judge.Map(mapName); r.Refused() {
		return r
	}
	if _, _, err := merkle.ParsePath(path); err != nil {
		return judge.Refusal{Code: protocol.CodeMalformed, Reason: err.Error()}
	}
	if len(keys) > protocol.MaxBatchItems {
		return judge.Refusal{Code: protocol.CodeTooLarge, Reason: "too many keys"}
	}
	for _, key := range keys {
		if r := judge.Key(key); r.Refused() {
			return r
		}
	}
	return judge.Refusal{}
}

// add queues a request of c, and has the answering started if nobody does. It reports
// whether there was room.
func (s *syncer) add(r syncRequest, c *conn) bool {
	cfg, all := &c.srv.cfg, &c.srv.syncsWaiting
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= cfg.MaxSyncRequests || len(s.queue) > 0 && s.bytes+r.size > cfg.MaxSyncRequestBytes {
		return false
	}
	if all.Add(1) > int64(cfg.MaxSyncRequestsOfAll) {
		all.Add(-1)
		return false
	}
	s.queue = append(s.queue, r)
	s.bytes += r.size
	if !s.running {
		s.running = true
		c.startSync()
	}
	return true
}

// next takes the first request; false means that the answering has ended.
func (s *syncer) next() (syncRequest, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.queue, s.running = nil, false
		return syncRequest{}, false
	}
	r := s.queue[0]
	s.queue[0] = syncRequest{}
	s.queue = s.queue[1:]
	s.bytes -= r.size
	return r, true
}

func (c *conn) startSync() {
	c.tasks.Add(1)
	c.srv.workers.Go(func() {
		defer c.tasks.Done()
		for r, ok := c.syncs.next(); ok; r, ok = c.syncs.next() {
			if c.ctx.Err() == nil { // otherwise the rest is dropped
				c.answerSync(r)
			}
			c.srv.syncsWaiting.Add(-1)
		}
	})
}

// answerSync answers one request when the answers to writes before it are on their way.
func (c *conn) answerSync(r syncRequest) {
	if r.earlier != nil {
		select {
		case <-r.earlier:
		case <-c.ctx.Done():
			return
		}
	}
	for next := &r.at; next != nil; {
		r.at = *next
		next = c.answerPortion(r)
	}
}

// answerPortion answers with a portion of what is asked for, when what was sent before is
// on its way, and returns where the next one begins, nil if that was all.
func (c *conn) answerPortion(r syncRequest) (next *partitions.LeafPlace) {
	c.out.settle(c.ctx, syncBacklog)
	select {
	case c.srv.syncSlots <- struct{}{}:
	case <-c.ctx.Done():
		return nil
	}
	started := time.Now()
	answers, next, err := c.readSync(r)
	<-c.srv.syncSlots
	outcome := "ok"
	switch {
	case c.ctx.Err() != nil:
		return nil
	case err != nil:
		outcome, answers = c.syncFailed(r.m, err)
		next = nil
	}
	c.srv.metrics.operations(serviceSync, outcome, 1, time.Since(started))
	for _, a := range answers {
		c.out.settle(c.ctx, syncBacklog)
		if a.frame != nil {
			c.replyFrame(a.kind, a.frame)
		} else {
			c.reply(a.m)
		}
	}
	return next
}

// syncAnswer is one answer to a sync request: a message, or a frame that is made already.
type syncAnswer struct {
	m     protocol.Message
	kind  protocol.Kind
	frame []byte
}

// answer is a list of one message.
func answer(m protocol.Message) []syncAnswer { return []syncAnswer{{m: m}} }

// syncFailed is the answer to a request that could not be read for.
func (c *conn) syncFailed(m protocol.Message, err error) (outcome string, answers []syncAnswer) {
	c.srv.log.Debug("sync request failed", "conn", c.id, "type", m.Kind().String(), "err", err)
	switch {
	case errors.Is(err, errClosed):
		return "unavailable", nil
	case errors.Is(err, partitions.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded):
		// Clients do not ask again on a connection that stays.
		c.end(closeFlushed, protocol.CloseRetry, reasonUnread)
		return "unavailable", nil
	}
	var limit *judge.Refusal
	if errors.As(err, &limit) {
		return "refused", answer(failureOf(m, limit.Code, limit.Reason))
	}
	return "failed", answer(failureOf(m, protocol.CodeInternal, "map cannot be read"))
}

// readSync reads what a request asks for; of a large leaf a portion, and next is where it
// goes on.
func (c *conn) readSync(r syncRequest) (answers []syncAnswer, next *partitions.LeafPlace, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.srv.cfg.OperationTimeout)
	defer cancel()
	switch m := r.m.(type) {
	case *protocol.SyncInit:
		answers, err = c.syncRoot(ctx, m)
	case *protocol.MerkleReqBucket:
		return c.syncBucket(ctx, m, r.at)
	case *protocol.ORMapSyncInit:
		answers, err = c.setRoot(ctx, m)
	case *protocol.ORMapMerkleReqBucket:
		return c.setBucket(ctx, m, r.at)
	case *protocol.ORMapDiffRequest:
		answers, err = c.setDiff(ctx, m)
	}
	return answers, nil, err
}

// errTooManyMaps refuses to sync one more map.
var errTooManyMaps = &judge.Refusal{Code: protocol.CodeOverloaded, Reason: "too many maps on this connection"}

// syncRoot answers SYNC_INIT. The changes of the map are delivered from now on: what
// comes after the root is read reaches the client as an event.
func (c *conn) syncRoot(ctx context.Context, m *protocol.SyncInit) ([]syncAnswer, error) {
	if !c.queries.watch(c, m.MapName, c.srv.cfg.MaxSyncMaps) {
		return nil, errTooManyMaps
	}
	horizon, err := c.backend.Horizon()
	if err != nil {
		return nil, err
	}
	if away := m.LastSyncTimestamp; away > 0 && horizon.Missed((away-syncLag)/1000) {
		reason := "deletions from before are not known any more"
		return answer(&protocol.SyncResetRequired{MapName: m.MapName, Reason: reason}), nil
	}
	leaves, err := c.backend.Tree(ctx, c.session, m.MapName, merkle.Records)
	if err != nil {
		return nil, err
	}
	return c.syncs.withPrune(horizon, &protocol.SyncRespRoot{MapName: m.MapName, RootHash: leaves.Root(), Timestamp: c.backend.Now()}), nil
}

// syncBucket answers MERKLE_REQ_BUCKET: with the children of a node, or with the
// records of a leaf.
func (c *conn) syncBucket(ctx context.Context, m *protocol.MerkleReqBucket, at partitions.LeafPlace,
) (answers []syncAnswer, next *partitions.LeafPlace, err error) {
	bucket, leaf, err := merkle.ParsePath(m.Path)
	if err != nil {
		return nil, nil, err
	}
	if !leaf {
		leaves, err := c.backend.Tree(ctx, c.session, m.MapName, merkle.Records)
		if err != nil {
			return nil, nil, err
		}
		return answer(&protocol.SyncRespBuckets{MapName: m.MapName, Path: m.Path, Buckets: leaves.Children(m.Path, false)}), nil, nil
	}
	return c.syncLeaf(ctx, m, bucket, at)
}

// syncLeaf answers for a portion of a leaf, in one frame. Its records go from the store
// into the frame.
func (c *conn) syncLeaf(ctx context.Context, m *protocol.MerkleReqBucket, bucket uint16, at partitions.LeafPlace,
) (answers []syncAnswer, next *partitions.LeafPlace, err error) {
	// The leaves of a map are about equally large.
	leaf := protocol.NewLeafFrame(m.MapName, m.Path, leafFirstBytes+c.syncs.leafBytes+c.syncs.leafBytes/8)
	place, end, err := c.backend.LeafRecords(ctx, c.session, m.MapName, bucket, at, func(key string, rec protocol.Record) bool {
		if c.maySee(m.MapName, key, rec.Value) {
			leaf.Add(key, rec)
		}
		return leaf.Len() < leafFrameBytes
	})
	if !end {
		next = &place
	}
	c.syncs.leafBytes = min(leaf.Len(), leafFrameBytes)
	return []syncAnswer{{kind: protocol.KindSyncRespLeaf, frame: leaf.Frame()}}, next, err
}
