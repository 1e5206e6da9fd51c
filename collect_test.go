package quorate_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/quorate/quorate"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// TestADeviceThatWasAwayTooLongBringsNothingBack deletes what a device has, lets the
// deletions be collected, and has the device come back with everything.
func TestADeviceThatWasAwayTooLongBringsNothingBack(t *testing.T) {
	noLeaks(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cfg := quorate.DefaultServerConfig()
	cfg.NodeID, cfg.Security.NoAuth = "n1", true
	cfg.Network.Host, cfg.Cluster.Port = "127.0.0.1", 0
	cfg.Storage.Path = filepath.Join(t.TempDir(), "n1.db")
	cfg.GCInterval, cfg.TombstoneAge = 20*time.Millisecond, time.Millisecond
	port, end := embed(t, cfg)
	awaitReady(t, port)
	conn := dial(ctx, t, port)
	at := func(counter int64) protocol.Timestamp {
		return protocol.Timestamp{Millis: time.Now().UnixMilli(), Counter: counter, NodeID: "d"}
	}
	add := protocol.ORRecord{Value: []byte{7}, Timestamp: at(1), Tag: "t"}
	exchange[*protocol.OpAck](ctx, t, conn, &protocol.OpBatch{Ops: []protocol.ClientOp{
		{ID: "1", MapName: "m", Key: "k", RecordPresence: protocol.Present, Record: protocol.Record{Value: []byte{1}, Timestamp: at(1)}},
		{ID: "2", MapName: "s", Key: "k", ORRecord: &add},
	}})
	exchange[*protocol.OpAck](ctx, t, conn, &protocol.OpBatch{Ops: []protocol.ClientOp{
		{ID: "3", MapName: "m", Key: "k", Type: protocol.OpRemove, RecordPresence: protocol.Present, Record: protocol.Record{Timestamp: at(2)}},
		{ID: "4", MapName: "s", Key: "k", ORTag: "t"},
	}})
	if prune := exchange[*protocol.GCPrune](ctx, t, conn, &protocol.Ping{}); prune.OlderThan.Millis == 0 {
		t.Errorf("prune notice %+v", prune)
	}
	// Both are collected when no bucket of either tree has keys any more.
	for {
		records := exchange[*protocol.SyncRespBuckets](ctx, t, conn, &protocol.MerkleReqBucket{MapName: "m"})
		sets := exchange[*protocol.ORMapSyncRespBuckets](ctx, t, conn, &protocol.ORMapMerkleReqBucket{MapName: "s", Path: merkle.Path(merkle.BucketOf("k"))[:2]})
		if len(records.Buckets) == 0 && len(sets.Buckets) == 0 {
			break
		}
	}

	shown := scrape(t, port)
	for _, line := range []string{
		`service_tombstone_pruned_total{kind="record"} 1`, `service_tombstone_pruned_total{kind="tag"} 1`, `service_tombstones{kind="tag"} 0`,
		`service_ormap_tombstone_bytes 0`, `service_crdt_merges_total{type="or"} 2`,
	} {
		if !strings.Contains(shown, "\n"+line+"\n") {
			t.Errorf("the metrics do not say %s", line)
		}
	}
	if strings.Contains(shown, "\nservice_tombstone_epoch_seconds 0\n") || strings.Contains(shown, "\nservice_ormap_tombstone_bytes_total 0\n") {
		t.Error("the metrics know no collecting")
	}

	device := dial(ctx, t, port)
	reset := exchange[*protocol.SyncResetRequired](ctx, t, device, &protocol.SyncInit{MapName: "m", LastSyncTimestamp: 1})
	if reset.MapName != "m" {
		t.Errorf("reset %+v", reset)
	}
	if root := exchange[*protocol.SyncRespRoot](ctx, t, device, &protocol.SyncInit{MapName: "m"}); root.RootHash != 0 {
		t.Errorf("root %#x of a map without records", root.RootHash)
	}
	init := &protocol.ORMapSyncInit{MapName: "s", RootHash: 77, BucketHashes: map[string]uint32{}}
	root := exchange[*protocol.ORMapSyncRespRoot](ctx, t, device, init)
	if !root.FullResync || root.RootHash != 0 {
		t.Errorf("root %+v, want an order to begin anew", root)
	}
	push := &protocol.ORMapPushDiff{MapName: "s", Entries: []protocol.OREntry{{Key: "k", Records: []protocol.ORRecord{add}, Tombstones: []string{}}}}
	frame, err := protocol.Append(nil, push)
	if err != nil {
		t.Fatal(err)
	}
	if err := device.Write(ctx, websocket.MessageBinary, frame); err != nil {
		t.Fatal(err)
	}
	if root := exchange[*protocol.ORMapSyncRespRoot](ctx, t, device, init); root.RootHash != 0 {
		t.Errorf("root %#x: what was removed has come back", root.RootHash)
	}
	_ = device.CloseNow()
	_ = conn.CloseNow()
	if err := end(); err != nil {
		t.Error(err)
	}
}
