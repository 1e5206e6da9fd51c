package partitions

import (
	"context"
	"errors"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/partitions/locks"
	"github.com/quorate/quorate/raftnode"
)

// newLocks returns the lock service of this run of the node.
func (r *Router) newLocks() *locks.Service {
	cfg := locks.DefaultConfig()
	cfg.Gateway = r.boot
	return locks.New(cfg, locks.Deps{
		Logger: r.log.Named("locks"), Board: r.deps.Board,
		Groups:  r.groups,
		GroupOf: r.groupOf,
		Replica: func(group uint32) (locks.Replica, bool) { return r.deps.Groups.Replica(group) },
		Leads:   r.leads,
		Submit: func(ctx context.Context, group uint32, cmd command.Raw) (command.Result, error) {
			return r.submit(ctx, nil, group, cmd)
		},
		Refused: func(err error) bool { return errors.Is(err, ErrUnavailable) },
	})
}

// submit brings one command that may be repeated to its group, and returns its result.
// What s reads later shows it; s may be nil. Errors as of Write.
func (r *Router) submit(ctx context.Context, s *Session, group uint32, cmd command.Raw) (command.Result, error) {
	if group == 0 || group > r.groups() {
		return command.Result{}, ErrUnavailable
	}
	return r.bring(ctx, s, group, cmd)
}

// bring is submit for any group.
func (r *Router) bring(ctx context.Context, s *Session, group uint32, cmd command.Raw) (command.Result, error) {
	w := &write{ctx: ctx, session: s, done: make(chan struct{}), results: make([]command.Result, 1)}
	w.expect(1)
	r.lane(group).submit(&part{write: w, group: group, cmds: []raftnode.Command{cmd}, bytes: len(cmd.Body), ops: []int{0}})
	if err := w.wait(ctx, r.cfg.Patience); err != nil {
		return command.Result{}, err
	}
	return w.results[0], nil
}

// AcquireLock waits until s holds a lock, and returns its fencing token; see
// locks.Service. What it writes under the token costs no question whether that was given.
func (r *Router) AcquireLock(ctx context.Context, s *Session, ask locks.Ask) (token uint64, err error) {
	token, err = r.locks.Acquire(ctx, s.locks, ask)
	if err == nil {
		r.learnToken(r.groupOf(ask.Name), token)
	}
	return token, err
}

// ReleaseLock ends the hold of a token; see locks.Service.
func (r *Router) ReleaseLock(ctx context.Context, s *Session, name string, token uint64) (released bool, reason string, err error) {
	return r.locks.Release(ctx, s.locks, name, token)
}

// RenewLock begins the lease of a token anew; see locks.Service.
func (r *Router) RenewLock(ctx context.Context, name string, token uint64, ttlMillis int64) (held bool, err error) {
	return r.locks.Renew(ctx, name, token, ttlMillis)
}

// EndSession releases the locks of a connection that has ended, and ends its requests. It
// blocks until that is decided or ctx ends; then it goes on in the background, until the
// Router is closed.
func (r *Router) EndSession(ctx context.Context, s *Session) { r.locks.Leave(ctx, s.locks) }
