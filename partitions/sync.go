package partitions

import (
	"context"
	"math"
	"slices"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// Now is a fresh stamp of the node's hybrid clock, above everything that the node has
// seen.
func (r *Router) Now() protocol.Timestamp { return r.deps.Clock.Now() }

// ClusterID names the cluster; it is empty before the node belongs to one.
func (r *Router) ClusterID() string {
	state := r.deps.Cluster()
	if state == nil || state.Genesis == nil {
		return ""
	}
	return state.Genesis.ClusterID
}

// Watch registers sink for the changes of mapName by others than s; see Subscribe. They
// are delivered at once: the caller shows no snapshot.
func (r *Router) Watch(s *Session, mapName string, sink Sink) *Subscription {
	sub := r.deps.Hub.Subscribe(mapName, s.origin, sink)
	sub.Release()
	return sub
}

// Tree returns the leaf buckets of one of the two hash trees of a map, over all its
// groups: exactly the tree that a client with the same records has. The states of the
// groups are not older than what s was acknowledged. It reads no records. It blocks
// until the replicas are that far, or ctx ends. Errors: ErrIncomplete, ErrUnavailable,
// those of the state machine.
func (r *Router) Tree(ctx context.Context, s *Session, mapName string, kind merkle.Kind) (*merkle.Leaves, error) {
	leaves := new(merkle.Leaves)
	err := r.eachGroup(ctx, s, func(_ uint32, reader Reader) error {
		_, err := reader.AddLeaves(mapName, kind, leaves)
		return err
	})
	return leaves, err
}

// LeafPlace is a place in a leaf of a map, over all its groups. The zero value is its
// beginning.
type LeafPlace struct {
	group uint32
	from  string
}

// LeafRecords calls fn with the records of a map whose keys are in bucket, tombstones and
// expired ones included, from a place on, until fn returns false, and returns the place
// behind the last one, and whether that is the end. fn must neither keep a record nor
// block, and takes none back if an error follows. Otherwise as Tree.
func (r *Router) LeafRecords(ctx context.Context, s *Session, mapName string, bucket uint16, at LeafPlace,
	fn func(key string, rec protocol.Record) bool,
) (next LeafPlace, end bool, err error) {
	return r.eachLeaf(ctx, s, mapName, bucket, at, func(reader Reader, leaf fsm.Leaf, stop func(key string)) error {
		return reader.LeafRecords(leaf, 0, func(key string, rec protocol.Record) bool {
			if !fn(key, rec) {
				stop(key)
				return false
			}
			return true
		})
	})
}

// LeafSets is LeafRecords for the keys of an observed-remove map; fn may keep them.
func (r *Router) LeafSets(ctx context.Context, s *Session, mapName string, bucket uint16, at LeafPlace,
	fn func(entry protocol.OREntry) bool,
) (next LeafPlace, end bool, err error) {
	return r.eachLeaf(ctx, s, mapName, bucket, at, func(reader Reader, leaf fsm.Leaf, stop func(key string)) error {
		return reader.LeafSets(leaf, func(entry protocol.OREntry) bool {
			if !fn(entry) {
				stop(entry.Key)
				return false
			}
			return true
		})
	})
}

// eachLeaf calls read for the groups from a place on, until it calls stop with the last
// key that it takes.
func (r *Router) eachLeaf(ctx context.Context, s *Session, mapName string, bucket uint16, at LeafPlace,
	read func(reader Reader, leaf fsm.Leaf, stop func(key string)) error,
) (next LeafPlace, end bool, err error) {
	end = true
	for group := max(at.group, 1); group <= r.groups() && end && err == nil; group++ {
		leaf := fsm.Leaf{Map: mapName, Bucket: bucket}
		if group == at.group {
			leaf.From = at.from
		}
		err = r.readGroup(ctx, s, group, func(group uint32, reader Reader) error {
			return read(reader, leaf, func(key string) {
				next, end = LeafPlace{group: group, from: key + "\x00"}, false
			})
		})
	}
	if r.groups() == 0 {
		err = ErrUnavailable
	}
	return next, end, err
}

// Sets returns the given keys of an observed-remove map, in their order; of one that is
// not there, an entry without records. Beyond about maxBytes it returns ErrTooMuch.
// Otherwise as Tree.
func (r *Router) Sets(ctx context.Context, s *Session, mapName string, keys []string, maxBytes int) ([]protocol.OREntry, error) {
	list := make([]protocol.OREntry, len(keys))
	err := r.eachGroup(ctx, s, func(group uint32, reader Reader) (err error) {
		for i, key := range keys {
			if placement.GroupOf(key, r.groups()) != group {
				continue
			}
			if list[i], err = reader.Set(mapName, key); err != nil {
				return err
			}
			if maxBytes -= list[i].Size(); maxBytes < 0 {
				return ErrTooMuch
			}
		}
		return nil
	})
	return list, err
}

// UnknownRemovals returns those of tags, of an observed-remove map, whose removal the
// groups need to hear of. They do not if one of them has it with its key, or all without;
// nor of a tag that none of them knows and that is as old as what all have collected:
// none takes a record with it any more.
func (r *Router) UnknownRemovals(mapName string, tags []string) []string {
	forgotten := r.forgotten()
	return slices.DeleteFunc(slices.Clone(tags), func(tag string) bool {
		unknown, removed := true, true
		for group := uint32(1); group <= r.groups(); group++ {
			reader, ok := r.deps.Groups.Reader(group)
			if !ok {
				return false
			}
			state, err := reader.Tag(mapName, tag)
			if err != nil {
				return false
			}
			if state == fsm.TagRemoved {
				return true
			}
			unknown = unknown && state == fsm.TagUnknown
			removed = removed && state == fsm.TagHomeless
		}
		if !unknown {
			return removed
		}
		ts, err := protocol.ParseTimestamp(tag)
		return err == nil && forgotten > 0 && ts.Millis <= forgotten
	})
}

// forgotten is the time up to which every group refuses records that it does not know.
func (r *Router) forgotten() int64 {
	oldest := int64(math.MaxInt64)
	for group := uint32(1); group <= r.groups(); group++ {
		reader, ok := r.deps.Groups.Reader(group)
		if !ok {
			return 0
		}
		oldest = min(oldest, reader.Horizon().CollectedMillis)
	}
	return oldest
}
