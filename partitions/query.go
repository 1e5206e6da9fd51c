package partitions

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
)

// Subscribe registers sink for the changes of mapName by others than s. Events are
// held back until Release on the result, which the caller closes in the end. It
// returns ErrUnavailable before the node belongs to a cluster.
func (r *Router) Subscribe(_ context.Context, s *Session, mapName string, sink Sink) (*Subscription, error) {
	if r.groups() == 0 {
		return nil, fmt.Errorf("%w: the node does not belong to a cluster yet", ErrUnavailable)
	}
	return r.deps.Hub.Subscribe(mapName, s.origin, sink), nil
}

// Snapshot returns the first live rows of sub's map in key order, up to limit and about
// maxBytes, and whether there are more. The state is that of this node's replicas, not
// older than what s was acknowledged; every change that it lacks is delivered to sub
// after Release. It blocks until the replicas are that far, or ctx ends. Errors:
// ErrIncomplete, ErrUnavailable, a storage error.
func (r *Router) Snapshot(ctx context.Context, s *Session, sub *Subscription, limit, maxBytes int) (rows []Row, more bool, err error) {
	now := r.deps.Physical()
	set := rowSet{limit: limit, maxBytes: maxBytes}
	err = r.eachGroup(ctx, s, func(group uint32, reader Reader) error {
		index, err := reader.Scan(sub.Map(), "", func(key string, rec protocol.Record) bool {
			return rec.IsTombstone() || rec.Expired(now) || set.add(Row{Key: key, Record: rec})
		})
		set.merge()
		sub.Covered(group, index)
		return err
	})
	return set.rows, set.more, err
}

// Barrier has everything that s reads from now on show all that was acknowledged to anyone
// before the call, on whichever node: it puts a mark into the log of every group and has
// reads wait for it. A leader that was deposed without knowing cannot commit one. It blocks
// until that is done or ctx ends. Errors as of Write; it may be repeated.
func (r *Router) Barrier(ctx context.Context, s *Session) error {
	groups := r.groups()
	if groups == 0 {
		return fmt.Errorf("%w: the node does not belong to a cluster yet", ErrUnavailable)
	}
	if readsUnconfirmed {
		return nil
	}
	w := &write{ctx: ctx, session: s, done: make(chan struct{}), results: make([]command.Result, groups)}
	w.expect(int(groups))
	for group := uint32(1); group <= groups; group++ {
		r.lane(group).submit(&part{write: w, group: group, cmds: []raftnode.Command{command.EncodeRead()}, ops: []int{int(group) - 1}})
	}
	if err := w.wait(ctx, r.cfg.Patience); err != nil {
		// A mark that may still come changes nothing.
		return fmt.Errorf("%w: read mark: %w", ErrUnavailable, err)
	}
	return nil
}

// eachGroup calls fn with the local replica of each data group, none of them older than
// what s was acknowledged. It blocks until they are that far, or ctx ends. Errors:
// ErrIncomplete, ErrUnavailable, those of fn.
func (r *Router) eachGroup(ctx context.Context, s *Session, fn func(group uint32, reader Reader) error) error {
	groups := r.groups()
	if groups == 0 {
		return fmt.Errorf("%w: the node does not belong to a cluster yet", ErrUnavailable)
	}
	for group := uint32(1); group <= groups; group++ {
		if err := r.readGroup(ctx, s, group, fn); err != nil {
			return err
		}
	}
	return nil
}

// readGroup is eachGroup for one group.
func (r *Router) readGroup(ctx context.Context, s *Session, group uint32, fn func(group uint32, reader Reader) error) error {
	reader, ok := r.deps.Groups.Reader(group)
	if !ok {
		return fmt.Errorf("group %d: %w", group, ErrIncomplete)
	}
	if err := r.deps.Groups.WaitApplied(ctx, group, s.index(group)); err != nil {
		return fmt.Errorf("%w: read of group %d: %w", ErrUnavailable, group, err)
	}
	if err := fn(group, reader); err != nil {
		return fmt.Errorf("read group %d: %w", group, err)
	}
	return nil
}
