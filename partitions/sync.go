package partitions

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/quorate/quorate/fsm"
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
	sub := r.deps.Hub.Subscribe(mapName, s.origin, Interest{}, sink)
	sub.Release()
	return sub
}

// Tree returns the leaf buckets of one of the two hash trees of a map, over all its
// groups: exactly the tree that a client with the same records has. The states of the
// groups are not older than what s was acknowledged. It reads no records. It blocks
// until the replicas are that far, or ctx ends. Errors: ErrUnavailable, those of the
// state machine.
func (r *Router) Tree(ctx context.Context, s *Session, mapName string, kind merkle.Kind) (*merkle.Leaves, error) {
	leaves := new(merkle.Leaves)
	err := r.scatter(ctx, s, func(_ uint32, reader Reader) error {
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
	// tag is where the removed tags of the key from go on.
	tag string
}

// LeafRecords calls fn with the records of a map whose keys are in bucket, tombstones and
// expired ones included, from a place on, until fn returns false, and returns the place
// behind the last one, and whether that is the end. fn must neither keep a record nor
// block, and takes none back if an error follows. Otherwise as Tree.
func (r *Router) LeafRecords(ctx context.Context, s *Session, mapName string, bucket uint16, at LeafPlace,
	fn func(key string, rec protocol.Record) bool,
) (next LeafPlace, end bool, err error) {
	return r.eachLeaf(ctx, s, mapName, bucket, at, func(reader Reader, leaf fsm.Leaf, stop func(fsm.Leaf)) error {
		return reader.Records(leaf.Map, []uint16{leaf.Bucket}, leaf.From, 0, func(_ uint16, key string, rec protocol.Record) bool {
			if !fn(key, rec) {
				leaf.From = key + "\x00"
				stop(leaf)
				return false
			}
			return true
		})
	})
}

// LeafSets is LeafRecords for the keys of an observed-remove map; fn may keep them. A key
// with very many removed tags comes in several parts, which clients merge one by one.
func (r *Router) LeafSets(ctx context.Context, s *Session, mapName string, bucket uint16, at LeafPlace,
	fn func(part protocol.OREntry) bool,
) (next LeafPlace, end bool, err error) {
	return r.eachLeaf(ctx, s, mapName, bucket, at, func(reader Reader, leaf fsm.Leaf, stop func(fsm.Leaf)) error {
		return reader.LeafSets(leaf, func(part protocol.OREntry) bool {
			if !fn(part) {
				stop(leaf.Behind(part))
				return false
			}
			return true
		})
	})
}

// eachLeaf calls read for the groups from a place on, until it calls stop with what is left
// of the leaf.
func (r *Router) eachLeaf(ctx context.Context, s *Session, mapName string, bucket uint16, at LeafPlace,
	read func(reader Reader, leaf fsm.Leaf, stop func(fsm.Leaf)) error,
) (next LeafPlace, end bool, err error) {
	end = true
	for group := max(at.group, 1); group <= r.groups() && end && err == nil; group++ {
		leaf := fsm.Leaf{Map: mapName, Bucket: bucket}
		if group == at.group {
			leaf.From, leaf.Tag = at.from, at.tag
		}
		err = r.readGroup(ctx, s, group, func(group uint32, reader Reader) error {
			return read(reader, leaf, func(left fsm.Leaf) {
				next, end = LeafPlace{group: group, from: left.From, tag: left.Tag}, false
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
	places := make([][]int, r.groups()+1)
	for i, key := range keys {
		if group := r.groupOf(key); group > 0 {
			places[group] = append(places[group], i)
		}
	}
	err := r.scatter(ctx, s, func(group uint32, reader Reader) error {
		if len(places[group]) == 0 {
			return nil
		}
		share := make([]string, len(places[group]))
		for i, place := range places[group] {
			share[i] = keys[place]
		}
		next, tooMuch := 0, false
		err := reader.Sets(mapName, share, func(part protocol.OREntry, more bool) bool {
			entry := &list[places[group][next]]
			entry.Key, entry.Records = part.Key, append(entry.Records, part.Records...)
			entry.Tombstones = append(entry.Tombstones, part.Tombstones...)
			if !more {
				next++
			}
			maxBytes -= part.Size()
			tooMuch = maxBytes < 0
			return !tooMuch
		})
		if tooMuch {
			return ErrTooMuch
		}
		return err
	})
	return list, err
}

// tagTime is how long UnknownRemovals waits for groups that are held elsewhere.
const tagTime = 3 * time.Second

// UnknownRemovals returns those of tags, of an observed-remove map, whose removal the
// groups need to hear of: all, if not every group can be asked. They do not if one of them
// has it with its key, or all without; nor of a tag that none of them knows and that is as
// old as what all have collected: none takes a record with it any more.
func (r *Router) UnknownRemovals(mapName string, tags []string) []string {
	if len(tags) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, tagTime)
	defer cancel()
	forgotten := r.forgotten()
	states := make([][]fsm.TagState, r.groups())
	err := r.scatter(ctx, nil, func(group uint32, reader Reader) (err error) {
		states[group-1], err = reader.Tags(mapName, tags)
		return err
	})
	if err != nil {
		return slices.Clone(tags)
	}
	var needed []string
	for i, tag := range tags {
		known, unknown, removed := false, true, true
		for _, group := range states {
			known = known || group[i] == fsm.TagRemoved
			unknown = unknown && group[i] == fsm.TagUnknown
			removed = removed && group[i] == fsm.TagHomeless
		}
		if !known && !removed && !(unknown && isForgotten(tag, forgotten)) {
			needed = append(needed, tag)
		}
	}
	return needed
}

// isForgotten reports whether a tag is as old as what was forgotten.
func isForgotten(tag string, forgotten int64) bool {
	ts, err := protocol.ParseTimestamp(tag)
	return err == nil && forgotten > 0 && ts.Millis <= forgotten
}

// forgotten is the time up to which every group refuses records that it does not know, 0
// if that is not known.
func (r *Router) forgotten() int64 {
	oldest := int64(math.MaxInt64)
	for group := uint32(1); group <= r.groups(); group++ {
		h, err := r.groupHorizon(group)
		if err != nil {
			return 0 // whoever asks is then told that more is unknown, not less
		}
		oldest = min(oldest, h.CollectedMillis)
	}
	return oldest
}
