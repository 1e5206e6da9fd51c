package ws

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
	"github.com/quorate/quorate/protocol/merkle/merkletest"
)

func orAdd(id, mapName, key, tag string) protocol.ClientOp {
	return protocol.ClientOp{ID: id, MapName: mapName, Key: key, Type: protocol.OpORAdd, ORRecord: orRecord(tag)}
}

func orRecord(tag string) *protocol.ORRecord {
	return &protocol.ORRecord{Tag: tag, Value: []byte{7}, Timestamp: protocol.Timestamp{Millis: testNow, NodeID: "c"}}
}

func orRemove(id, mapName, key, tag string) protocol.ClientOp {
	return protocol.ClientOp{ID: id, MapName: mapName, Key: key, Type: protocol.OpORRemove, ORTag: tag}
}

func TestAClientFindsWhatDiffersByWalkingTheTree(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(batch(put("1", "m", "alice", 1), put("2", "m", "bob", 2), protocol.ClientOp{
		ID: "3", MapName: "m", Key: "bob", Type: protocol.OpRemove, Record: tombstone(testNow + 9), RecordPresence: protocol.Present,
	}))
	expect[*protocol.OpAck](c)

	var tree merkle.Tree
	tree.Update(merkle.BucketOf("alice"), 0, merkle.LWWItem("alice", record(1, testNow+1).Timestamp), 1, 0)
	tree.Update(merkle.BucketOf("bob"), 0, merkle.LWWItem("bob", tombstone(testNow+9).Timestamp), 1, 0)
	leaves := new(merkle.Leaves)
	tree.AddTo(leaves)

	c.send(&protocol.SyncInit{MapName: "m"})
	root := expect[*protocol.SyncRespRoot](c)
	require.Equal(t, &protocol.SyncRespRoot{MapName: "m", RootHash: leaves.Root(), Timestamp: f.backend.Now()}, root)
	for _, path := range []string{"", "8", "87"} {
		c.send(&protocol.MerkleReqBucket{MapName: "m", Path: path})
		require.Equal(t, &protocol.SyncRespBuckets{MapName: "m", Path: path, Buckets: leaves.Children(path, false)}, expect[*protocol.SyncRespBuckets](c))
	}
	c.send(&protocol.MerkleReqBucket{MapName: "m", Path: merkle.Path(merkle.BucketOf("bob"))})
	leaf := expect[*protocol.SyncRespLeaf](c)
	require.Len(t, leaf.Records, 1)
	require.True(t, leaf.Records[0].Record.IsTombstone(), "deletions are part of a leaf")
	c.send(&protocol.MerkleReqBucket{MapName: "m", Path: "000"})
	require.Empty(t, expect[*protocol.SyncRespLeaf](c).Records)
	c.send(&protocol.SyncInit{MapName: "unknown"})
	require.Zero(t, expect[*protocol.SyncRespRoot](c).RootHash)
}

// TestKeysThatCollideAreSynced takes two keys of one hash, whose items are equal in the tree.
func TestKeysThatCollideAreSynced(t *testing.T) {
	const one, other = "key-901258", "key-1540052"
	at := record(1, testNow).Timestamp
	require.Equal(t, merkle.LWWItem(one, at), merkle.LWWItem(other, at))
	f := start(t)
	c := f.dial()
	root := func(id, key string) uint32 {
		op := put(id, "m", key, 1)
		op.Record.Timestamp = at
		c.send(batch(op))
		expect[*protocol.OpAck](c)
		c.send(&protocol.SyncInit{MapName: "m"})
		return expect[*protocol.SyncRespRoot](c).RootHash
	}
	require.NotEqual(t, root("1", one), root("2", other), "they do not cancel each other out")
	c.send(&protocol.MerkleReqBucket{MapName: "m", Path: merkle.Path(merkle.BucketOf(one))})
	var keys []string
	for _, rec := range expect[*protocol.SyncRespLeaf](c).Records {
		keys = append(keys, rec.Key)
	}
	require.ElementsMatch(t, []string{one, other}, keys)
}

// TestAChangeThatNoHashShowsReachesWhoFollows writes under a timestamp that was chosen so that
// the tree stays as it was.
func TestAChangeThatNoHashShowsReachesWhoFollows(t *testing.T) {
	f := start(t)
	writer, watcher := f.dial(), f.dial()
	first := put("1", "m", "k", 1)
	again := put("2", "m", "k", 2)
	again.Record.Timestamp = merkletest.Stamp("k", first.Record.Timestamp.Millis+1, merkle.LWWItem("k", first.Record.Timestamp))
	root := func() uint32 {
		watcher.send(&protocol.SyncInit{MapName: "m"})
		return expect[*protocol.SyncRespRoot](watcher).RootHash
	}
	writer.send(batch(first))
	expect[*protocol.OpAck](writer)
	before := root()
	writer.send(batch(again))
	expect[*protocol.OpAck](writer)
	require.Equal(t, again.Record, *expect[*protocol.ServerEvent](watcher).Record)
	require.Equal(t, before, root(), "otherwise the attack does not work")
}

func TestARemovedValueReachesAClientThatWasAway(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(batch(orAdd("1", "labels", "tags", "a"), orAdd("2", "labels", "tags", "b"), orRemove("3", "labels", "tags", "a"), orRemove("4", "labels", "tags", "b")))
	require.Nil(t, expect[*protocol.OpAck](c).Results, "all were accepted")
	c.send(&protocol.ORMapSyncInit{MapName: "labels", BucketHashes: map[string]uint32{}})
	require.Zero(t, expect[*protocol.ORMapSyncRespRoot](c).RootHash)
	path := merkle.Path(merkle.BucketOf("tags"))
	for depth := range merkle.Digits {
		c.send(&protocol.ORMapMerkleReqBucket{MapName: "labels", Path: path[:depth]})
		resp := expect[*protocol.ORMapSyncRespBuckets](c)
		hash, listed := resp.Buckets[path[depth:depth+1]]
		require.True(t, listed, "a key without values keeps its bucket listed")
		require.Zero(t, hash)
		if depth < 2 {
			require.Len(t, resp.Buckets, 16, "above the leaves all children are listed")
		} else {
			require.Len(t, resp.Buckets, 1)
		}
	}
	c.send(&protocol.ORMapMerkleReqBucket{MapName: "labels", Path: path})
	require.Equal(t, []protocol.OREntry{{Key: "tags", Tombstones: []string{"a", "b"}}}, expect[*protocol.ORMapSyncRespLeaf](c).Entries)
}

func TestADiffHasOneEntryPerKeyInTheOrderAskedFor(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(batch(orAdd("1", "labels", "x", "a")))
	expect[*protocol.OpAck](c)
	c.send(&protocol.ORMapDiffRequest{MapName: "labels", Keys: []string{"y", "x", "y"}})
	empty := protocol.OREntry{Key: "y"}
	require.Equal(t, []protocol.OREntry{empty, {Key: "x", Records: []protocol.ORRecord{*orRecord("a")}}, empty},
		expect[*protocol.ORMapDiffResponse](c).Entries)
}

func TestAPushIsMergedAndNotAnswered(t *testing.T) {
	f := start(t)
	writer, watcher := f.dial(), f.dial()
	writer.send(batch(orAdd("1", "labels", "tags", "a"), orAdd("2", "labels", "other", "b")))
	expect[*protocol.OpAck](writer)
	watcher.send(&protocol.ORMapSyncInit{MapName: "labels", BucketHashes: map[string]uint32{}})
	expect[*protocol.ORMapSyncRespRoot](watcher)

	// The tombstones of each entry are those of the client's whole map.
	writer.send(&protocol.ORMapPushDiff{MapName: "labels", Entries: []protocol.OREntry{
		{Key: "tags", Records: []protocol.ORRecord{*orRecord("a"), *orRecord("c")}, Tombstones: []string{"b", "gone"}},
		{Key: "third", Records: []protocol.ORRecord{*orRecord("gone")}, Tombstones: []string{"b", "gone"}},
	}})
	first, second := expect[*protocol.ServerEvent](watcher), expect[*protocol.ServerEvent](watcher)
	require.Equal(t, &protocol.ServerEvent{MapName: "labels", EventType: protocol.OpORRemove, Key: "other", ORTag: "b"}, first)
	require.Equal(t, &protocol.ServerEvent{MapName: "labels", EventType: protocol.OpORAdd, Key: "tags", ORRecord: orRecord("c"), ORTag: "c"}, second)
	writer.silent()
	watcher.silent()
	for _, op := range f.backend.written() {
		require.False(t, op.Add != nil && op.Add.Tag == "gone", "what the client itself knows to be removed is not brought")
	}

	writer.send(&protocol.ORMapPushDiff{MapName: "$sys/x", Entries: []protocol.OREntry{}})
	require.Equal(t, protocol.CodeForbidden, expect[*protocol.ErrorMessage](writer).Code)
	writer.send(&protocol.ORMapPushDiff{MapName: "m", Entries: []protocol.OREntry{{Key: "k", Records: []protocol.ORRecord{{}}, Tombstones: []string{}}}})
	require.Equal(t, protocol.CodeMalformed, expect[*protocol.ErrorMessage](writer).Code)
}

func TestAMapThatIsSyncedIsFollowedWithoutAQuery(t *testing.T) {
	f := start(t)
	writer, watcher := f.dial(), f.dial()
	watcher.send(&protocol.SyncInit{MapName: "m"})
	expect[*protocol.SyncRespRoot](watcher)
	writer.send(batch(put("1", "m", "k", 1)))
	expect[*protocol.OpAck](writer)
	require.Equal(t, "k", expect[*protocol.ServerEvent](watcher).Key)
	// A query beside it has updates of its own, and the events go on when it ends.
	watcher.send(querySub("q", "m"))
	expect[*protocol.QueryResp](watcher)
	writer.send(batch(put("2", "m", "k2", 1)))
	expect[*protocol.OpAck](writer)
	got := map[string]int{}
	for range 2 {
		got[watcher.next().Kind().String()]++
	}
	require.Equal(t, map[string]int{"SERVER_EVENT": 1, "QUERY_UPDATE": 1}, got)
	watcher.send(&protocol.QueryUnsub{QueryID: "q"})
	watcher.send(&protocol.SyncInit{MapName: "m"})
	expect[*protocol.SyncRespRoot](watcher)
	writer.send(batch(put("3", "m", "k3", 1)))
	expect[*protocol.OpAck](writer)
	require.Equal(t, "k3", expect[*protocol.ServerEvent](watcher).Key)
	watcher.silent()
}

func TestSyncWaitsForTheWritesBeforeIt(t *testing.T) {
	release := make(chan struct{})
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onWrite = func(context.Context, []partitions.Op) error { <-release; return nil }
	})
	c := f.dial()
	c.send(batch(put("1", "m", "k", 1)))
	c.send(&protocol.SyncInit{MapName: "m"})
	c.send(&protocol.Ping{})
	expect[*protocol.Pong](c)
	close(release)
	expect[*protocol.OpAck](c)
	require.NotZero(t, expect[*protocol.SyncRespRoot](c).RootHash)
}

func TestSyncRequestsAreBoundedAndHeartbeatsAreAnsweredBesideThem(t *testing.T) {
	hold := make(chan struct{})
	f := start(t, func(cfg *Config, _ *Deps, b *fakeBackend) {
		cfg.MaxSyncRequests = 50
		b.onSnapshot = func(ctx context.Context) error {
			select {
			case <-hold:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	c := f.dial()
	for range 50 {
		c.send(&protocol.MerkleReqBucket{MapName: "m", Path: ""})
	}
	c.send(&protocol.Ping{})
	expect[*protocol.Pong](c)
	close(hold)
	for range 50 {
		expect[*protocol.SyncRespBuckets](c)
	}
	eventually(t, func() bool { return f.syncsWaiting.Load() == 0 }, "all are answered")
}

// A request that is not answered is not made again on a connection that stays.
func TestASyncRequestTooManyEndsTheConnection(t *testing.T) {
	hold := make(chan struct{})
	f := start(t, func(cfg *Config, _ *Deps, b *fakeBackend) {
		cfg.MaxSyncRequests = 50
		b.onSnapshot = func(ctx context.Context) error {
			select {
			case <-hold:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	c := f.dial()
	for range 52 { // one may be on its way
		c.send(&protocol.MerkleReqBucket{MapName: "m", Path: ""})
	}
	require.Equal(t, protocol.CloseRetry, c.expectClose())
	eventually(t, func() bool { return f.syncsWaiting.Load() == 0 }, "none is left")
	close(hold)
}

func TestSyncRequestsOfAllConnectionsAreBounded(t *testing.T) {
	hold := make(chan struct{})
	f := start(t, func(cfg *Config, _ *Deps, b *fakeBackend) {
		cfg.MaxSyncRequestsOfAll = 3
		b.onSnapshot = func(context.Context) error { <-hold; return nil }
	})
	a, b := f.dial(), f.dial()
	for range 3 {
		a.send(&protocol.MerkleReqBucket{MapName: "m", Path: ""})
	}
	eventually(t, func() bool { return f.syncsWaiting.Load() == 3 }, "three wait")
	b.send(&protocol.MerkleReqBucket{MapName: "m", Path: ""})
	require.Equal(t, protocol.CloseRetry, b.expectClose())
	close(hold)
	for range 3 {
		expect[*protocol.SyncRespBuckets](a)
	}
}

func TestABigLeafComesInPortions(t *testing.T) {
	f := start(t)
	c := f.dial()
	value := append([]byte{0xc6, 0, 3, 0xff, 0xfb}, make([]byte, 256<<10-5)...)
	// Three keys of one bucket.
	var keys []string
	for i := 0; len(keys) < 3; i++ {
		if key := fmt.Sprint("k", i); merkle.BucketOf(key) == merkle.BucketOf("k0") {
			keys = append(keys, key)
		}
	}
	for i, key := range keys {
		f.backend.put("m", key, protocol.Record{Value: value, Timestamp: protocol.Timestamp{Millis: int64(i + 1), NodeID: "x"}})
	}
	c.send(&protocol.MerkleReqBucket{MapName: "m", Path: merkle.Path(merkle.BucketOf("k0"))})
	first, second := expect[*protocol.SyncRespLeaf](c), expect[*protocol.SyncRespLeaf](c)
	require.Len(t, first.Records, 2)
	require.Len(t, second.Records, 1)
}

func TestBadSyncRequests(t *testing.T) {
	f := start(t, func(cfg *Config, _ *Deps, _ *fakeBackend) { cfg.MaxSyncMaps = 2 })
	c := f.dial()
	for _, bad := range []struct {
		m    protocol.Message
		code protocol.Code
	}{
		{&protocol.SyncInit{MapName: ""}, protocol.CodeMalformed},
		{&protocol.SyncInit{MapName: "$sys/members"}, protocol.CodeForbidden},
		{&protocol.ORMapSyncInit{MapName: "_service_x", BucketHashes: map[string]uint32{}}, protocol.CodeForbidden},
		{&protocol.MerkleReqBucket{MapName: "m", Path: "8722"}, protocol.CodeMalformed},
		{&protocol.MerkleReqBucket{MapName: "m", Path: "Z"}, protocol.CodeMalformed},
		{&protocol.ORMapMerkleReqBucket{MapName: "m", Path: "\xff"}, protocol.CodeMalformed},
		{&protocol.ORMapDiffRequest{MapName: "m", Keys: []string{strings.Repeat("k", 1025)}}, protocol.CodeMalformed},
		{&protocol.ORMapDiffRequest{MapName: "m", Keys: make([]string, 8193)}, protocol.CodeTooLarge},
	} {
		c.send(bad.m)
		require.Equal(t, bad.code, expect[*protocol.ErrorMessage](c).Code, "%+v", bad.m)
	}
	for i, want := range []bool{true, true, false, false} {
		c.send(&protocol.SyncInit{MapName: fmt.Sprint("m", i)})
		_, ok := c.next().(*protocol.SyncRespRoot)
		require.Equal(t, want, ok, "map %d", i)
	}
}

func TestAMapThatCannotBeReadIsAnError(t *testing.T) {
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onSnapshot = func(context.Context) error { return errors.New("page 7 is damaged") }
	})
	c := f.dial()
	c.send(&protocol.SyncInit{MapName: "m"})
	require.Equal(t, protocol.CodeInternal, expect[*protocol.ErrorMessage](c).Code)
	c.send(&protocol.ORMapSyncInit{MapName: "m", BucketHashes: map[string]uint32{}})
	require.Equal(t, protocol.CodeInternal, expect[*protocol.ErrorMessage](c).Code)
}

func TestAClientWhoseSyncFailsForNowComesAgain(t *testing.T) {
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onSnapshot = func(context.Context) error { return partitions.ErrUnavailable }
	})
	c := f.dial()
	c.send(&protocol.MerkleReqBucket{MapName: "m", Path: ""})
	require.Equal(t, protocol.CloseRetry, c.expectClose())
}

// Whether a client missed deletions is not known: it neither starts from nothing nor goes on.
func TestAClientOfWhichNobodyKnowsWhatItMissedComesAgain(t *testing.T) {
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) { b.horizonErr = partitions.ErrUnavailable })
	for name, m := range map[string]protocol.Message{
		"records": &protocol.SyncInit{MapName: "m", LastSyncTimestamp: 1},
		"sets":    &protocol.ORMapSyncInit{MapName: "labels", RootHash: 77, BucketHashes: map[string]uint32{}},
		"push": &protocol.ORMapPushDiff{MapName: "labels", Entries: []protocol.OREntry{
			{Key: "k", Records: []protocol.ORRecord{*orRecord("1:1:w")}, Tombstones: []string{}},
		}},
	} {
		c := f.dial()
		c.send(m)
		require.Equal(t, protocol.CloseRetry, c.expectClose(), name)
	}
	require.Empty(t, f.backend.writes)
	c := f.dial()
	c.send(&protocol.ORMapDiffRequest{MapName: "labels", Keys: []string{"k"}})
	require.Zero(t, expect[*protocol.ORMapDiffResponse](c).CoveringEpoch, "nothing is covered")
}

func TestAClientThatMayHaveMissedDeletionsStartsFromNothing(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(batch(put("1", "m", "k", 1), orAdd("2", "labels", "tags", "a")))
	expect[*protocol.OpAck](c)
	f.backend.setHorizon(partitions.Horizon{PrunedMillis: 5_000_000, CollectedMillis: 4_000_000, Epoch: 9_000})
	require.Equal(t, &protocol.GCPrune{OlderThan: protocol.Timestamp{Millis: 5_000_000}}, expect[*protocol.GCPrune](c))

	for _, away := range []struct {
		last  int64
		reset bool
	}{{0, false}, {1, true}, {4_000_000, true}, {4_299_999, true}, {4_302_000, false}, {9_000_000, false}} {
		c.send(&protocol.SyncInit{MapName: "m", LastSyncTimestamp: away.last})
		switch m := c.next().(type) {
		case *protocol.SyncResetRequired:
			require.True(t, away.reset, "away since %d", away.last)
			require.Equal(t, "m", m.MapName)
		case *protocol.SyncRespRoot:
			require.False(t, away.reset, "away since %d", away.last)
		}
	}

	own := uint32(0)
	for _, init := range []struct {
		root  uint32
		epoch int64
		full  bool
	}{{0, 0, false}, {77, 0, true}, {77, 4000, true}, {77, 4300, true}, {77, 4301, false}} {
		c.send(&protocol.ORMapSyncInit{MapName: "labels", RootHash: init.root, ClaimedEpoch: init.epoch, BucketHashes: map[string]uint32{}})
		root := expect[*protocol.ORMapSyncRespRoot](c)
		require.Equal(t, init.full, root.FullResync, "%+v", init)
		require.Equal(t, int64(9000), root.CoveringEpoch)
		own = root.RootHash
	}
	c.send(&protocol.ORMapSyncInit{MapName: "labels", RootHash: own, BucketHashes: map[string]uint32{}})
	require.False(t, expect[*protocol.ORMapSyncRespRoot](c).FullResync, "equal roots hold nothing that was removed")
	c.send(&protocol.ORMapMerkleReqBucket{MapName: "labels", Path: merkle.Path(merkle.BucketOf("tags"))})
	require.Equal(t, int64(9000), expect[*protocol.ORMapSyncRespLeaf](c).CoveringEpoch)
	c.send(&protocol.ORMapDiffRequest{MapName: "labels", Keys: []string{"tags"}})
	require.Equal(t, int64(9000), expect[*protocol.ORMapDiffResponse](c).CoveringEpoch)
	c.send(&protocol.ClientApplyAck{Cursor: 9000})
	c.silent()

	// A client that comes now is told before its first root, once.
	d := f.dial()
	d.send(&protocol.SyncInit{MapName: "m"})
	require.Equal(t, int64(5_000_000), expect[*protocol.GCPrune](d).OlderThan.Millis)
	expect[*protocol.SyncRespRoot](d)
	d.send(&protocol.ORMapSyncInit{MapName: "labels", BucketHashes: map[string]uint32{}})
	expect[*protocol.ORMapSyncRespRoot](d)

	// A client that stays is told that it has seen everything.
	f.backend.setHorizon(partitions.Horizon{PrunedMillis: 8_000_000, CollectedMillis: 7_000_000, Epoch: 12_000})
	frame := d.nextFrame()
	require.NotEmpty(t, protocol.Fields(frame)["timestamp"], "a long stay is no absence")
	require.Equal(t, &protocol.ORMapDiffResponse{MapName: "labels", CoveringEpoch: 9000}, expect[*protocol.ORMapDiffResponse](d))
}

func TestAClientWhoseWritesWereNotTakenIsNotToldToDropThem(t *testing.T) {
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onWrite = func(context.Context, []partitions.Op) error { return partitions.ErrUnavailable }
	})
	f.backend.setHorizon(partitions.Horizon{PrunedMillis: 5_000_000, CollectedMillis: 4_000_000, Epoch: 9_000})
	c := f.dial()
	c.send(batch(orAdd("1", "labels", "tags", "a")))
	require.Equal(t, protocol.CodeUnavailable, expect[*protocol.ErrorMessage](c).Code)
	c.send(&protocol.ORMapSyncInit{MapName: "labels", RootHash: 77, BucketHashes: map[string]uint32{}})
	require.Equal(t, protocol.CloseRetry, c.expectClose())
}

func TestPushesOfAClientThatMayHaveMissedRemovalsArePassedOver(t *testing.T) {
	f := start(t)
	f.backend.setHorizon(partitions.Horizon{PrunedMillis: 5_000_000, CollectedMillis: 4_000_000, Epoch: 9_000})
	c := f.dial()
	push := func(tag string) {
		c.send(&protocol.ORMapPushDiff{MapName: "labels", Entries: []protocol.OREntry{{Key: "k", Records: []protocol.ORRecord{*orRecord(tag)}, Tombstones: []string{}}}})
	}
	tags := func() (list []string) {
		c.send(&protocol.ORMapDiffRequest{MapName: "labels", Keys: []string{"k"}})
		for _, rec := range expect[*protocol.ORMapDiffResponse](c).Entries[0].Records {
			list = append(list, rec.Tag)
		}
		return list
	}
	push("before any sync")
	c.send(&protocol.ORMapMerkleReqBucket{MapName: "labels", Path: ""})
	expect[*protocol.ORMapSyncRespBuckets](c)
	push("without a beginning")
	c.send(&protocol.ORMapSyncInit{MapName: "labels", RootHash: 77, BucketHashes: map[string]uint32{}})
	expect[*protocol.GCPrune](c)
	require.True(t, expect[*protocol.ORMapSyncRespRoot](c).FullResync)
	push("stale")
	c.send(&protocol.ORMapMerkleReqBucket{MapName: "labels", Path: ""})
	expect[*protocol.ORMapSyncRespBuckets](c)
	push("fresh")
	eventually(t, func() bool { return len(tags()) > 0 }, "the push")
	require.Equal(t, []string{"fresh"}, tags())
}

func TestAnAnswerIsBounded(t *testing.T) {
	f := start(t, func(cfg *Config, _ *Deps, _ *fakeBackend) { cfg.MaxResponseBytes = 5000 })
	c := f.dial()
	ops := make([]protocol.ClientOp, 6000)
	for i := range ops {
		ops[i] = orRemove(fmt.Sprint(i+1), "labels", "tags", fmt.Sprint("tag-", i))
	}
	c.send(batch(ops...))
	expect[*protocol.OpAck](c)
	c.send(&protocol.ORMapDiffRequest{MapName: "labels", Keys: []string{"tags"}})
	require.Equal(t, protocol.CodeTooLarge, expect[*protocol.ErrorMessage](c).Code)
	c.send(&protocol.ORMapMerkleReqBucket{MapName: "labels", Path: merkle.Path(merkle.BucketOf("tags"))})
	entries := expect[*protocol.ORMapSyncRespLeaf](c).Entries
	require.Len(t, entries, 6, "removed tags beyond a thousand are continued in another entry")
	for i, e := range entries {
		require.Equal(t, "tags", e.Key)
		require.Len(t, e.Tombstones, min(fsm.MaxTags, 6000-i*fsm.MaxTags))
	}
}
