package partitions

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/raftnode"
)

// Subscribe registers sink for the changes of mapName that want asks for. Events are
// held back until Release on the result, which the caller closes in the end. It
// returns ErrUnavailable before the node belongs to a cluster.
func (r *Router) Subscribe(_ context.Context, s *Session, mapName string, want Interest, sink Sink) (*Subscription, error) {
	if r.groups() == 0 {
		return nil, errNoCluster
	}
	return r.deps.Hub.Subscribe(mapName, s.origin, want, sink), nil
}

// Barrier has everything that s reads from now on show all that was acknowledged to anyone
// before the call, on whichever node: it puts a mark into the log of every group and has
// reads wait for it. A leader that was deposed without knowing cannot commit one. It blocks
// until that is done, for Config.ConfirmTimeout at most. The error is ErrUnavailable; it
// may be repeated.
func (r *Router) Barrier(ctx context.Context, s *Session) error {
	groups := r.groups()
	if groups == 0 {
		return errNoCluster
	}
	if readsUnconfirmed {
		return nil
	}
	all := make([]uint32, groups)
	for i := range all {
		all[i] = uint32(i) + 1
	}
	_, err := r.mark(ctx, s, all)
	return err
}

// mark puts a mark into the logs of groups, and returns their results; what s reads later
// shows them, and s may be nil. Otherwise as Barrier.
func (r *Router) mark(ctx context.Context, s *Session, groups []uint32) ([]command.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ConfirmTimeout)
	defer cancel()
	w := &write{ctx: ctx, session: s, done: make(chan struct{}), results: make([]command.Result, len(groups))}
	w.expect(len(groups))
	for i, group := range groups {
		r.lane(group).submit(&part{write: w, group: group, cmds: []raftnode.Command{command.EncodeRead()}, ops: []int{i}})
	}
	if err := w.wait(ctx, r.cfg.Patience); err != nil {
		// A mark that may still come changes nothing.
		return nil, fmt.Errorf("%w: mark: %w", ErrUnavailable, err)
	}
	return w.results, nil
}
