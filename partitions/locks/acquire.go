package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
)

// cleanupTime is how long the end of a request is tried that its client does not wait for
// any more. After that the end of the session does it.
const cleanupTime = 30 * time.Second

// DefaultTimeout is how long a request takes at most to get into the log when its Ask says
// nothing.
const DefaultTimeout = 30 * time.Second

// Ask is a wish to hold a lock.
type Ask struct {
	Name string
	// TTLMillis is how long it is held without renewal, in milliseconds; zero is as long
	// as the session lives.
	TTLMillis int64
	// Asked is when the request came from the client; zero is now.
	Asked time.Time
	// Patience is how long the client waits for an answer from then on. A grant that came
	// later would be ignored, and the lock held by nobody. Zero is for as long as it takes
	// to learn whether the lock is free, without a wait for its holder.
	Patience time.Duration
	// Timeout is how long it may take at most until the request is in the log; zero is
	// DefaultTimeout.
	Timeout time.Duration
	// Decided, if set, is called once, when the first outcome of the request is in the
	// log or will never be: what the session does next with the lock comes after it.
	Decided func()
}

// Acquire waits until the session holds a lock, and returns its token: at once if it
// holds it already. It gives up shortly before patience or ctx ends, and returns no token
// after that. Errors: ErrNotGranted, ErrUnreachable, ErrEnded, ErrFull, ErrNoCluster, those
// of Deps.Submit for which Deps.Refused holds; after each of them the request neither holds
// the lock nor waits for it, or is about to be ended.
func (s *Service) Acquire(ctx context.Context, session *Session, ask Ask) (token uint64, err error) {
	r := &pending{
		service: s, session: session, ask: ask, group: s.deps.GroupOf(ask.Name),
		req: lock.Request{Session: session.id, ID: s.requests.Add(1), TTLMillis: ask.TTLMillis},
	}
	defer r.decided()
	if r.group == 0 {
		return 0, ErrNoCluster
	}
	limit, cancel := context.WithDeadline(ctx, r.schedule())
	defer cancel()
	if limit.Err() != nil {
		return 0, ErrNotGranted
	}
	if err := s.enter(r); err != nil {
		return 0, err
	}
	defer session.leave(ask.Name)
	outcome, err := r.wait(limit)
	if err != nil {
		return r.giveUp(ctx, err)
	}
	return r.settle(outcome)
}

// pending is one request on its way.
type pending struct {
	service *Service
	session *Session
	ask     Ask
	group   uint32
	req     lock.Request
	// counted is when the request must be in the log, and end when the client stops
	// waiting: from then on it is told of no token. margin is how long before that the
	// request is given up.
	counted, end time.Time
	margin       time.Duration
	// before is the greatest token of the group that the client was told of when the request
	// came. The request has nothing to do with a hold of that or a smaller token: tokens
	// ascend, so another one got it.
	before uint64
	// index is that of the log entry which counted the request.
	index uint64
}

// schedule sets the times of the request, and returns when it is given up.
func (r *pending) schedule() (limit time.Time) {
	asked, timeout := r.ask.Asked, cmp.Or(r.ask.Timeout, DefaultTimeout)
	if asked.IsZero() {
		asked = time.Now()
	}
	patience := cmp.Or(r.ask.Patience, timeout)
	r.end, r.margin = asked.Add(patience), min(r.service.cfg.Margin, patience/4)
	limit = r.end.Add(-r.margin)
	r.counted = asked.Add(min(timeout, patience-r.margin))
	return limit
}

func (r *pending) decided() {
	if r.ask.Decided != nil {
		r.ask.Decided()
		r.ask.Decided = nil
	}
}

// wait asks for the lock and waits for the outcome. An error leaves open what the request
// has come to.
func (r *pending) wait(ctx context.Context) (lock.Outcome, error) {
	watch := r.service.deps.Board.Watch(storage.SectionLocks, r.ask.Name)
	defer watch.Close()
	first, cancel := context.WithDeadline(ctx, r.counted)
	defer cancel()
	outcome, err := r.offer(first, command.KindLock)
	if err != nil {
		return outcome, err
	}
	r.decided()
	if r.ask.Patience == 0 && outcome.State == lock.Waiting {
		return outcome, ErrNotGranted
	}
	poll := time.NewTicker(r.service.cfg.PollInterval)
	defer poll.Stop()
	for outcome.State == lock.Waiting {
		select {
		case <-watch.C:
			outcome = r.local(outcome)
		case <-poll.C:
			if _, held := r.service.deps.Replica(r.group); held {
				outcome = r.local(outcome)
			} else if outcome, err = r.offer(ctx, command.KindLock); err != nil {
				if ctx.Err() != nil {
					err = ErrNotGranted // it was waiting when it was last heard of
				}
				return outcome, err
			}
		case <-ctx.Done():
			return outcome, ErrNotGranted
		}
	}
	return outcome, nil
}

// offer brings the request to its group: again it is the question what has become of it.
func (r *pending) offer(ctx context.Context, kind command.Kind) (lock.Outcome, error) {
	cmd := command.EncodeLockRequest(kind, command.LockRequest{Name: r.ask.Name, Request: r.req})
	res, err := r.service.submit(ctx, r.group, cmd)
	if err != nil {
		return lock.Outcome{}, err
	}
	r.index = max(r.index, res.Index)
	if res.Code == protocol.CodeOverloaded {
		return lock.Outcome{State: lock.Full}, nil
	}
	return command.DecodeOutcome(res.Value)
}

// local is what the request has come to as the local replica sees it, or last if that is
// behind.
func (r *pending) local(last lock.Outcome) lock.Outcome {
	replica, held := r.service.deps.Replica(r.group)
	if !held {
		return last
	}
	if applied, _ := replica.Applied(); applied < r.index {
		return last
	}
	return replica.LockStatus(r.ask.Name, r.req)
}

// settle answers a request that has come to an end.
func (r *pending) settle(outcome lock.Outcome) (uint64, error) {
	switch outcome.State {
	case lock.Granted:
		return r.take(outcome.Token)
	case lock.Full:
		return 0, ErrFull
	default:
		return 0, ErrEnded
	}
}

// take notes that the client is told of a token, unless it does not wait any more.
func (r *pending) take(token uint64) (uint64, error) {
	if !time.Now().Before(r.end) {
		r.spawnCleanUp()
		return 0, ErrNotGranted
	}
	r.session.mu.Lock()
	defer r.session.mu.Unlock()
	if r.session.ended {
		return 0, ErrEnded
	}
	u := r.session.unsettled[r.ask.Name]
	if u.doomed == token {
		return 0, ErrNotGranted
	}
	u.granted = token
	r.session.told[r.group] = max(r.session.told[r.group], token)
	return token, nil
}

// giveUp ends a request that was not granted in time, or whose outcome is unknown. If it
// turns out to be granted while the client still waits, it is.
func (r *pending) giveUp(ctx context.Context, cause error) (uint64, error) {
	if r.index == 0 && r.service.deps.Refused(cause) {
		return 0, cause
	}
	last, cancel := context.WithTimeout(ctx, r.margin/2)
	defer cancel()
	outcome, err := r.offer(last, command.KindCancel)
	switch {
	case err != nil:
		r.spawnCleanUp()
	case outcome.State == lock.Granted:
		return r.settle(outcome)
	}
	if errors.Is(cause, ErrNotGranted) {
		return 0, ErrNotGranted
	}
	return 0, fmt.Errorf("%w: %w", ErrUnreachable, cause)
}

// spawnCleanUp has a request ended whose client has been told that it was not granted. The
// request is not over until that is known: one that may still release a lock stays counted.
func (r *pending) spawnCleanUp() {
	r.session.mu.Lock()
	r.session.hold(r.ask.Name)
	r.session.mu.Unlock()
	r.service.spawn(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, cleanupTime)
		defer cancel()
		if err := r.cleanUp(ctx); err != nil {
			r.service.deps.Logger.Debug("request for a lock was not ended", "lock", r.ask.Name, "err", err)
			return
		}
		r.session.leave(r.ask.Name)
	})
}

func (r *pending) cleanUp(ctx context.Context) error {
	outcome, err := r.offer(ctx, command.KindCancel)
	if err == nil && outcome.State == lock.Granted && r.doom(outcome.Token) {
		_, _, err = r.service.Release(ctx, r.session, r.ask.Name, outcome.Token)
	}
	return err
}

// doom reports whether nobody was told of a token; then nobody will be.
func (r *pending) doom(token uint64) bool {
	r.session.mu.Lock()
	defer r.session.mu.Unlock()
	u := r.session.unsettled[r.ask.Name]
	if token <= r.before || u.granted == token {
		return false
	}
	u.doomed = token
	return true
}

// Release ends the hold of a token, whoever has it, and reports whether the token held
// the lock; if not, why. Repeats say what the first said. An error leaves open whether it
// was released.
func (s *Service) Release(ctx context.Context, _ *Session, name string, token uint64) (released bool, reason string, err error) {
	cmd := command.EncodeLockToken(command.KindUnlock, command.LockToken{Name: name, Token: token})
	res, err := s.submitFor(ctx, name, cmd)
	if err != nil {
		return false, "", fmt.Errorf("release lock: %w", err)
	}
	return res.Code == 0, res.Reason, nil
}

// submitFor brings a command to the group of a lock.
func (s *Service) submitFor(ctx context.Context, name string, cmd command.Raw) (command.Result, error) {
	group := s.deps.GroupOf(name)
	if group == 0 {
		return command.Result{}, ErrNoCluster
	}
	return s.submit(ctx, group, cmd)
}

// Renew begins the lease of a token anew with another duration, in milliseconds, and
// reports whether the token holds the lock. An error leaves open whether it was renewed.
func (s *Service) Renew(ctx context.Context, name string, token uint64, ttlMillis int64) (held bool, err error) {
	m := command.LockToken{Name: name, Token: token, TTLMillis: ttlMillis}
	res, err := s.submitFor(ctx, name, command.EncodeLockToken(command.KindRenew, m))
	if err != nil {
		return false, fmt.Errorf("renew lock: %w", err)
	}
	return res.Code == 0, nil
}
