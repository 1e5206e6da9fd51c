package locks

import (
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

// Ask is a wish to hold a lock.
type Ask struct {
	Name string
	// TTLMillis is how long it is held without renewal, in milliseconds; zero is as long
	// as the session lives.
	TTLMillis int64
	// Patience is how long the client waits for an answer.
	Patience time.Duration
	// Decided, if set, is called once, when the first outcome of the request is in the
	// log or will never be: what the session does next with the lock comes after it.
	Decided func()
}

// Acquire waits until the session holds a lock, and returns its token: at once if it
// holds it already. It gives up shortly before patience or ctx ends. Errors:
// ErrNotGranted, ErrEnded, ErrFull, ErrNoCluster, those of Deps.Submit; after each of them the request
// neither holds the lock nor waits for it, or is about to be ended.
func (s *Service) Acquire(ctx context.Context, session *Session, ask Ask) (token uint64, err error) {
	r := &pending{
		service: s, session: session, ask: ask, group: s.deps.GroupOf(ask.Name),
		req: lock.Request{Session: session.id, ID: s.requests.Add(1), TTLMillis: ask.TTLMillis},
	}
	if r.group == 0 {
		r.decided()
		return 0, ErrNoCluster
	}
	limit, cancel := context.WithTimeout(ctx, max(ask.Patience-s.cfg.Margin, s.cfg.Tick))
	defer cancel()
	if !s.enter(session, r.group) {
		r.decided()
		return 0, ErrEnded
	}
	defer r.decided()
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
	// index is that of the log entry which counted the request.
	index uint64
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
	outcome, err := r.offer(ctx, command.KindLock)
	if err != nil {
		return outcome, err
	}
	r.decided()
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

// take notes that the client is told of a token.
func (r *pending) take(token uint64) (uint64, error) {
	r.session.mu.Lock()
	defer r.session.mu.Unlock()
	if r.session.ended {
		return 0, ErrEnded
	}
	if r.session.doomed[r.ask.Name] == token {
		return 0, ErrNotGranted
	}
	r.session.granted[r.ask.Name] = token
	return token, nil
}

// giveUp ends a request that was not granted in time, or whose outcome is unknown. If it
// turns out to be granted while the client still waits, it is.
func (r *pending) giveUp(ctx context.Context, cause error) (uint64, error) {
	if r.index == 0 && r.service.deps.Refused(cause) {
		return 0, cause
	}
	last, cancel := context.WithTimeout(ctx, r.service.cfg.Margin/2)
	defer cancel()
	outcome, err := r.offer(last, command.KindCancel)
	if err == nil {
		if outcome.State == lock.Granted {
			return r.settle(outcome)
		}
		return 0, ErrNotGranted
	}
	r.service.spawn(r.cleanUp)
	if !errors.Is(cause, ErrNotGranted) {
		return 0, fmt.Errorf("%w: %w", ErrNotGranted, cause)
	}
	return 0, ErrNotGranted
}

// cleanUp ends a request whose client has been told that it was not granted.
func (r *pending) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	defer cancel()
	outcome, err := r.offer(ctx, command.KindCancel)
	if err == nil && outcome.State == lock.Granted && r.doom(outcome.Token) {
		_, _, err = r.service.Release(ctx, r.session, r.ask.Name, outcome.Token)
	}
	if err != nil {
		r.service.deps.Logger.Debug("request for a lock was not ended", "lock", r.ask.Name, "err", err)
	}
}

// doom reports whether nobody was told of a token; then nobody will be.
func (r *pending) doom(token uint64) bool {
	r.session.mu.Lock()
	defer r.session.mu.Unlock()
	if r.session.granted[r.ask.Name] == token {
		return false
	}
	r.session.doomed[r.ask.Name] = token
	return true
}

// Release ends the hold of a token, whoever has it, and reports whether the token held
// the lock; if not, why. Repeats say what the first said. An error leaves open whether it
// was released.
func (s *Service) Release(ctx context.Context, session *Session, name string, token uint64) (released bool, reason string, err error) {
	cmd := command.EncodeLockToken(command.KindUnlock, command.LockToken{Name: name, Token: token})
	res, err := s.submitFor(ctx, name, cmd)
	if err != nil {
		return false, "", fmt.Errorf("release lock: %w", err)
	}
	session.mu.Lock()
	if session.granted[name] == token {
		delete(session.granted, name)
	}
	session.mu.Unlock()
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
