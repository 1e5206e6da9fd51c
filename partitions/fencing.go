package partitions

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
)

// neverGiven is the refusal of a fence whose token nobody was given.
var neverGiven = command.Result{Code: protocol.CodeStale, Reason: "the lock never gave this token"}

// judgeFences refuses the operations of w with a token that the group of their lock gave to
// nobody: noted with the key, such a token would shut out every holder to come. It blocks
// while groups are asked, each once for all operations. The error is ErrUnavailable.
func (r *Router) judgeFences(ctx context.Context, w *write) error {
	var open []int
	asked := map[uint32]struct{}{}
	for i := range w.ops {
		fence := w.ops[i].Fence
		switch {
		case fence.Lock == "":
		case fence.Token == 0:
			w.results[i] = neverGiven
		case !r.wasGiven(fence):
			open = append(open, i)
			asked[r.groupOf(fence.Lock)] = struct{}{}
		}
	}
	if len(open) == 0 {
		return nil
	}
	if err := r.askTokens(ctx, slices.Sorted(maps.Keys(asked))); err != nil {
		return fmt.Errorf("tokens of locks: %w", err)
	}
	for _, i := range open {
		if !r.wasGiven(w.ops[i].Fence) {
			w.results[i] = neverGiven
		}
	}
	return nil
}

// wasGiven reports whether the group of a lock is known to have given a token, or a greater
// one: its replica here has seen that, or the group told of it.
func (r *Router) wasGiven(fence Fence) bool {
	group := r.groupOf(fence.Lock)
	if replica, held := r.deps.Groups.Replica(group); held && fence.Token <= replica.GreatestToken() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return fence.Token <= r.tokens[group]
}

// learnToken notes that a group gave a token.
func (r *Router) learnToken(group uint32, token uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens[group] = max(r.tokens[group], token)
}

// askTokens learns the greatest tokens of groups by marks in their logs: only those say that
// a token was not given.
func (r *Router) askTokens(ctx context.Context, groups []uint32) error {
	results, err := r.mark(ctx, nil, groups)
	if err != nil {
		return err
	}
	for i, group := range groups {
		greatest, err := command.DecodeGreatestToken(results[i].Value)
		if err != nil {
			return fmt.Errorf("%w: mark of group %d: %w", ErrUnavailable, group, err)
		}
		r.learnToken(group, greatest)
	}
	return nil
}
