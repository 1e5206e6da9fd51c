package harness

import (
	"context"
	"strconv"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// Sync sends what is not acknowledged and then walks the tree of every map, until the
// device has everything that the node has. It reports whether all roots were equal
// from the start.
func (d *Device) Sync(ctx context.Context) (equal bool, err error) {
	if err := d.flush(ctx); err != nil {
		return false, err
	}
	equal = true
	for mapName := range d.Records {
		same, err := d.walkRecords(ctx, mapName)
		if err != nil {
			return false, err
		}
		equal = equal && same
	}
	for mapName := range d.Sets {
		same, err := d.walkSets(ctx, mapName)
		if err != nil {
			return false, err
		}
		equal = equal && same
	}
	return equal, nil
}

// flush sends all pending operations and waits until the watermark covers them.
func (d *Device) flush(ctx context.Context) error {
	if len(d.ops) == 0 {
		return nil
	}
	if err := d.send(ctx, &protocol.OpBatch{Ops: d.ops}); err != nil {
		return err
	}
	for {
		m, err := d.receive(ctx)
		if err != nil {
			return err
		}
		if ack, ok := m.(*protocol.OpAck); ok {
			mark, _ := strconv.Atoi(ack.LastID) // ids are numbers
			if mark >= d.nextID {
				d.ops = nil
				return nil
			}
		}
	}
}

// await receives until a message of type M.
func await[M protocol.Message](ctx context.Context, d *Device) (m M, err error) {
	for {
		got, err := d.receive(ctx)
		if err != nil {
			return m, err
		}
		if m, ok := got.(M); ok {
			return m, nil
		}
	}
}

func (d *Device) walkRecords(ctx context.Context, mapName string) (equal bool, err error) {
	if err := d.send(ctx, &protocol.SyncInit{MapName: mapName, LastSyncTimestamp: d.last.Millis}); err != nil {
		return false, err
	}
	root, err := await[*protocol.SyncRespRoot](ctx, d)
	if err != nil {
		return false, err
	}
	d.see(root.Timestamp)
	own := d.leaves(mapName, merkle.Records)
	if own.Root() == root.RootHash {
		return true, nil
	}
	open := []string{""}
	for len(open) > 0 {
		path := open[len(open)-1]
		open = open[:len(open)-1]
		d.Requests++
		if err := d.send(ctx, &protocol.MerkleReqBucket{MapName: mapName, Path: path}); err != nil {
			return false, err
		}
		if len(path) == merkle.Digits {
			leaf, err := await[*protocol.SyncRespLeaf](ctx, d)
			if err != nil {
				return false, err
			}
			for _, kr := range leaf.Records {
				d.mergeRecord(mapName, kr.Key, kr.Record)
			}
			continue
		}
		resp, err := await[*protocol.SyncRespBuckets](ctx, d)
		if err != nil {
			return false, err
		}
		open = append(open, different(own, path, resp.Buckets)...)
	}
	return false, nil
}

// different are the listed children whose hash is not the device's own.
func different(own *merkle.Leaves, path string, listed map[string]uint32) (paths []string) {
	mine := own.Children(path, false)
	for digit, hash := range listed {
		if mine[digit] != hash {
			paths = append(paths, path+digit)
		}
	}
	return paths
}

func (d *Device) walkSets(ctx context.Context, mapName string) (equal bool, err error) {
	own := d.leaves(mapName, merkle.Sets)
	init := &protocol.ORMapSyncInit{MapName: mapName, RootHash: own.Root(), BucketHashes: own.Children("", false)}
	if err := d.send(ctx, init); err != nil {
		return false, err
	}
	root, err := await[*protocol.ORMapSyncRespRoot](ctx, d)
	if err != nil {
		return false, err
	}
	d.see(root.Timestamp)
	if own.Root() == root.RootHash {
		return true, nil
	}
	open := []string{""}
	for len(open) > 0 {
		path := open[len(open)-1]
		open = open[:len(open)-1]
		d.Requests++
		if err := d.send(ctx, &protocol.ORMapMerkleReqBucket{MapName: mapName, Path: path}); err != nil {
			return false, err
		}
		if len(path) == merkle.Digits {
			leaf, err := await[*protocol.ORMapSyncRespLeaf](ctx, d)
			if err != nil {
				return false, err
			}
			if err := d.takeLeaf(ctx, mapName, leaf); err != nil {
				return false, err
			}
			continue
		}
		resp, err := await[*protocol.ORMapSyncRespBuckets](ctx, d)
		if err != nil {
			return false, err
		}
		open = append(open, different(own, path, resp.Buckets)...)
		if len(path) == merkle.Digits-1 {
			if err := d.pushUnlisted(ctx, mapName, path, own, resp.Buckets); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// takeLeaf merges a leaf and pushes what the device has under its keys.
func (d *Device) takeLeaf(ctx context.Context, mapName string, leaf *protocol.ORMapSyncRespLeaf) error {
	var keys []string
	for _, e := range leaf.Entries {
		d.set(mapName).merge(e)
		keys = append(keys, e.Key)
	}
	return d.push(ctx, mapName, keys)
}

// pushUnlisted pushes the keys of leaf buckets that the server did not list.
func (d *Device) pushUnlisted(ctx context.Context, mapName, path string, own *merkle.Leaves, listed map[string]uint32) error {
	var keys []string
	for key := range d.set(mapName).Live {
		at := merkle.Path(merkle.BucketOf(key))
		_, known := listed[at[len(path):]]
		if at[:len(path)] == path && !known && own.Children(path, false)[at[len(path):]] != 0 {
			keys = append(keys, key)
		}
	}
	return d.push(ctx, mapName, keys)
}

func (d *Device) push(ctx context.Context, mapName string, keys []string) error {
	m := d.set(mapName)
	removed := make([]string, 0, len(m.Removed))
	for tag := range m.Removed {
		removed = append(removed, tag)
	}
	push := &protocol.ORMapPushDiff{MapName: mapName}
	for _, key := range keys {
		if len(m.Live[key]) > 0 {
			push.Entries = append(push.Entries, protocol.OREntry{Key: key, Records: sorted(m.Live[key]), Tombstones: removed})
		}
	}
	if len(push.Entries) == 0 {
		return nil
	}
	return d.send(ctx, push)
}
