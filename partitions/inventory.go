package partitions

import (
	"context"
	"fmt"
	"slices"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// MapStat says what a map holds.
type MapStat struct {
	Name string
	// Entries counts the keys with a live value, of both kinds of maps; Tombstones the
	// deleted keys and removed tags that are remembered. Bytes is the size of keys and
	// values.
	Entries, Tombstones, Bytes int
	// Records and Sets tell whether the map has, or had, last-write-wins records and
	// observed-remove sets.
	Records, Sets bool
	// Partitions counts the live keys of each partition.
	Partitions [protocol.PartitionCount]int
	// Incomplete: some groups are not held by this node, and not counted.
	Incomplete bool
}

// MapNames lists the maps that the groups on this node have or had keys of, in order.
func (r *Router) MapNames() []string {
	var names []string
	for group := uint32(1); group <= r.groups(); group++ {
		if reader, ok := r.deps.Groups.Replica(group); ok {
			names = append(names, reader.MapNames()...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Inventory counts what a map holds, by reading it. Errors: ErrUnavailable, those of the
// state machine, the context's.
func (r *Router) Inventory(ctx context.Context, mapName string) (*MapStat, error) {
	groups := r.groups()
	if groups == 0 {
		return nil, errNoCluster
	}
	stat := &MapStat{Name: mapName}
	for group := uint32(1); group <= groups; group++ {
		reader, ok := r.deps.Groups.Replica(group)
		if !ok {
			stat.Incomplete = true
			continue
		}
		if err := stat.countRecords(ctx, reader, r.deps.Physical()); err != nil {
			return nil, fmt.Errorf("count records of group %d: %w", group, err)
		}
		if err := stat.countSets(ctx, reader); err != nil {
			return nil, fmt.Errorf("count sets of group %d: %w", group, err)
		}
	}
	return stat, nil
}

func (m *MapStat) countRecords(ctx context.Context, reader Replica, now int64) error {
	_, err := reader.Scan(m.Name, "", func(key string, rec protocol.Record) bool {
		m.Records = true
		switch {
		case rec.IsTombstone():
			m.Tombstones++
		case !rec.Expired(now):
			m.live(key, len(rec.Value))
		}
		return ctx.Err() == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	return err
}

func (m *MapStat) countSets(ctx context.Context, reader Replica) error {
	var leaves merkle.Leaves
	if _, err := reader.AddLeaves(m.Name, merkle.Sets, &leaves); err != nil {
		return err
	}
	for bucket := range uint16(merkle.Buckets) {
		if !leaves.Has(bucket) {
			continue
		}
		m.Sets = true
		err := reader.LeafSets(fsm.Leaf{Map: m.Name, Bucket: bucket}, func(entry protocol.OREntry) bool {
			m.Tombstones += len(entry.Tombstones)
			if len(entry.Records) > 0 {
				m.live(entry.Key, entry.Size())
			}
			return true
		})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *MapStat) live(key string, size int) {
	m.Entries++
	m.Bytes += len(key) + size
	m.Partitions[protocol.Partition(key)]++
}
