package partitions

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
)

// neverGiven is the refusal of a fence whose token nobody was given.
var neverGiven = command.Result{Code: protocol.CodeStale, Reason: "the lock never gave this token"}

// judgeFences refuses the operations of w with a token that the group of their lock gave to
// nobody: noted with the key, such a token would shut out every holder to come. It blocks
// while a group is asked. The error is ErrUnavailable.
func (r *Router) judgeFences(ctx context.Context, w *write) error {
	for i := range w.ops {
		fence := w.ops[i].Fence
		if fence.Lock == "" {
			continue
		}
		given, err := r.wasGiven(ctx, fence)
		if err != nil {
			return fmt.Errorf("%w: tokens of lock %s: %w", ErrUnavailable, fence.Lock, err)
		}
		if !given {
			w.results[i] = neverGiven
		}
	}
	return nil
}

// wasGiven reports whether the group of a lock gave a token, or a greater one. What its
// replica here has seen, or was told by the group before, is enough for that; that the token
// was not given takes a mark in the log.
func (r *Router) wasGiven(ctx context.Context, fence Fence) (bool, error) {
	group := r.groupOf(fence.Lock)
	if replica, held := r.deps.Groups.Replica(group); held && fence.Token <= replica.GreatestToken() {
		return true, nil
	}
	r.mu.Lock()
	known := r.tokens[group]
	r.mu.Unlock()
	if fence.Token <= known {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ConfirmTimeout)
	defer cancel()
	res, err := r.submit(ctx, nil, group, command.EncodeRead())
	if err != nil {
		return false, err // a mark that may still come changes nothing
	}
	greatest, err := command.DecodeGreatestToken(res.Value)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	r.tokens[group] = max(r.tokens[group], greatest)
	r.mu.Unlock()
	return fence.Token <= greatest, nil
}
