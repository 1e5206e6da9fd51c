package ws

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/partitions/locks"
	"github.com/quorate/quorate/protocol"
)

// openLocks gives the backend the real lock service over its state machine.
func (b *fakeBackend) openLocks() {
	cfg := locks.DefaultConfig()
	cfg.Gateway = "n1/boot"
	b.locks = locks.New(cfg, locks.Deps{
		Logger: hclog.NewNullLogger(), Board: b.board,
		Groups: func() uint32 { return 1 }, GroupOf: func(string) uint32 { return 1 },
		Replica: func(uint32) (locks.Replica, bool) { return b.machine, true },
		Leads:   func(uint32) bool { return true },
		Submit:  func(_ context.Context, _ uint32, cmd command.Raw) (command.Result, error) { return b.apply(cmd) },
		Refused: func(error) bool { return false },
	})
}

// apply brings one command to the state machine.
func (b *fakeBackend) apply(cmd command.Raw) (command.Result, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.index++
	data := command.AppendEntry(nil, protocol.Timestamp{Millis: testNow, NodeID: "n1"}, []command.Raw{cmd})
	results, err := b.machine.Apply([]fsm.Entry{{Index: b.index, Term: 1, Data: data}})
	if err != nil {
		return command.Result{}, err
	}
	return results[0][0], nil
}

func (b *fakeBackend) locker(s *partitions.Session) *locks.Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lockers[s]
}

func (b *fakeBackend) AcquireLock(ctx context.Context, s *partitions.Session, ask locks.Ask) (uint64, error) {
	if b.onAcquire != nil {
		if err := b.onAcquire(); err != nil {
			return 0, err
		}
	}
	return b.locks.Acquire(ctx, b.locker(s), ask)
}

func (b *fakeBackend) ReleaseLock(ctx context.Context, s *partitions.Session, name string, token uint64) (bool, string, error) {
	if b.onRelease != nil {
		b.onRelease()
	}
	return b.locks.Release(ctx, b.locker(s), name, token)
}

func (b *fakeBackend) RenewLock(ctx context.Context, name string, token uint64, ttlMillis int64) (bool, error) {
	return b.locks.Renew(ctx, name, token, ttlMillis)
}

func (b *fakeBackend) EndSession(ctx context.Context, s *partitions.Session) {
	b.locks.Leave(ctx, b.locker(s))
}

func lockRequest(id string) *protocol.LockRequest {
	return &protocol.LockRequest{RequestID: id, Name: "jobs/nightly"}
}

func release(id string, token uint64) *protocol.LockRelease {
	return &protocol.LockRelease{RequestID: id, Name: "jobs/nightly", FencingToken: token}
}

func TestLocksAreGrantedInOrder(t *testing.T) {
	f := start(t)
	a, b, c := f.dial(), f.dial(), f.dial()
	a.send(lockRequest("a1"))
	first := expect[*protocol.LockGranted](a)
	require.Equal(t, "a1", first.RequestID)
	require.Equal(t, "jobs/nightly", first.Name)
	a.send(lockRequest("a2"))
	require.Equal(t, &protocol.LockGranted{RequestID: "a2", Name: "jobs/nightly", FencingToken: first.FencingToken}, expect[*protocol.LockGranted](a))
	b.send(lockRequest("b1"))
	eventually(t, func() bool { return len(f.backend.machine.Lock("jobs/nightly").Waiters) == 1 }, "b waits")
	c.send(lockRequest("c1"))
	eventually(t, func() bool { return len(f.backend.machine.Lock("jobs/nightly").Waiters) == 2 }, "c waits")

	// A release by another connection that knows the token counts.
	c.send(release("r0", first.FencingToken+1))
	require.Equal(t, &protocol.LockReleased{RequestID: "r0", Name: "jobs/nightly", Reason: "the token does not hold the lock"}, expect[*protocol.LockReleased](c))
	a.send(release("", first.FencingToken))
	require.Equal(t, &protocol.LockReleased{Name: "jobs/nightly", Success: true}, expect[*protocol.LockReleased](a))
	second := expect[*protocol.LockGranted](b)
	require.Greater(t, second.FencingToken, first.FencingToken)
	require.NoError(t, b.sock.CloseNow())
	require.Greater(t, expect[*protocol.LockGranted](c).FencingToken, second.FencingToken, "a connection that is gone holds nothing")
}

func TestARequestBehindAReleaseGetsANewToken(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(lockRequest("1"))
	token := expect[*protocol.LockGranted](c).FencingToken
	for range 50 {
		c.send(release("r", token))
		c.send(lockRequest("2"))
		require.True(t, expect[*protocol.LockReleased](c).Success)
		next := expect[*protocol.LockGranted](c).FencingToken
		require.Greater(t, next, token)
		token = next
	}
}

// TestNoGrantComesAfterItsClientHasGivenUp holds that the patience of a client begins with
// its request, and not when a release before it has ended.
func TestNoGrantComesAfterItsClientHasGivenUp(t *testing.T) {
	going := make(chan struct{})
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) { b.onRelease = func() { <-going } })
	c := f.dial()
	c.send(lockRequest("1"))
	token := expect[*protocol.LockGranted](c).FencingToken
	wait := int64(1)
	late := lockRequest("late")
	late.WaitMillis = &wait
	c.send(release("r", token))
	c.send(late)
	c.silent()
	received := time.Now()
	eventually(t, func() bool { return time.Since(received) > time.Millisecond }, "patience is over")
	close(going)
	require.True(t, expect[*protocol.LockReleased](c).Success)
	require.Equal(t, &protocol.LockReleased{Name: "jobs/nightly", Reason: "the lock was not granted in time"}, expect[*protocol.LockReleased](c))
	require.Nil(t, f.backend.machine.Lock("jobs/nightly"))
}

func TestALockThatCannotBeReachedIsUnavailable(t *testing.T) {
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) { b.onAcquire = func() error { return locks.ErrUnreachable } })
	c := f.dial()
	c.send(lockRequest("1"))
	require.Equal(t, protocol.CodeUnavailable, expect[*protocol.ErrorMessage](c).Code)
	require.Equal(t, &protocol.LockReleased{Name: "jobs/nightly", Reason: locks.ErrUnreachable.Error()}, expect[*protocol.LockReleased](c))
}

// TestNobodyTakesADenialForAGrant holds that no LOCK_RELEASED ever has the id of a request:
// clients would take it for a grant.
func TestNobodyTakesADenialForAGrant(t *testing.T) {
	f := start(t)
	a, b := f.dial(), f.dial()
	a.send(lockRequest("a"))
	expect[*protocol.LockGranted](a)
	wait, zero, day, beyond := int64(600), int64(0), maxLease.Milliseconds(), maxLease.Milliseconds()+1
	impatient := lockRequest("b")
	impatient.WaitMillis = &wait
	b.send(impatient)
	denied := expect[*protocol.LockReleased](b)
	require.Equal(t, &protocol.LockReleased{Name: "jobs/nightly", Reason: "the lock was not granted in time"}, denied)

	for _, bad := range []*protocol.LockRequest{
		{RequestID: "x", Name: ""}, {RequestID: "x", Name: "no spaces"}, {RequestID: "x", Name: "l", TTLMillis: &zero},
		{RequestID: "x", Name: "l", FencingToken: new(uint64)}, {RequestID: "x", Name: "l", TTLMillis: &beyond},
		{RequestID: "x", Name: "l", TTLMillis: &beyond, FencingToken: new(uint64)},
	} {
		b.send(bad)
		require.Equal(t, protocol.CodeMalformed, expect[*protocol.ErrorMessage](b).Code)
		require.Empty(t, expect[*protocol.LockReleased](b).RequestID)
	}
	b.send(&protocol.LockRelease{RequestID: "r", Name: "no spaces", FencingToken: 1})
	require.False(t, expect[*protocol.LockReleased](b).Success)
	b.send(&protocol.LockRequest{RequestID: "x", Name: "l", TTLMillis: &day})
	expect[*protocol.LockGranted](b)
}

func TestLeasesAreRenewedByToken(t *testing.T) {
	f := start(t)
	c := f.dial()
	ttl := int64(60_000)
	request := lockRequest("1")
	request.TTLMillis = &ttl
	c.send(request)
	token := expect[*protocol.LockGranted](c).FencingToken
	renew := func(token uint64) {
		c.send(&protocol.LockRequest{RequestID: "renew", Name: "jobs/nightly", TTLMillis: &ttl, FencingToken: &token})
	}
	renew(token)
	require.Equal(t, token, expect[*protocol.LockGranted](c).FencingToken)
	require.Equal(t, uint64(1), f.backend.machine.Lock("jobs/nightly").Lease)
	renew(token + 1)
	require.Equal(t, &protocol.LockReleased{RequestID: "renew", Name: "jobs/nightly", Reason: "the token does not hold the lock"}, expect[*protocol.LockReleased](c))
}

func TestRequestsForLocksAreBounded(t *testing.T) {
	f := start(t, func(cfg *Config, _ *Deps, _ *fakeBackend) { cfg.MaxRequests = 2 })
	a, b := f.dial(), f.dial()
	a.send(lockRequest("a"))
	expect[*protocol.LockGranted](a)
	for range 3 {
		b.send(lockRequest("b"))
	}
	require.Equal(t, protocol.CodeOverloaded, expect[*protocol.ErrorMessage](b).Code)
	b.silent()
}

// TestRequestsThatWaitDoNotStandInTheWayOfAHolder holds that a connection can keep and
// release what it holds, however many of its requests wait for other locks.
func TestRequestsThatWaitDoNotStandInTheWayOfAHolder(t *testing.T) {
	f := start(t, func(cfg *Config, _ *Deps, _ *fakeBackend) { cfg.MaxRequests = 2 })
	a, b := f.dial(), f.dial()
	a.send(lockRequest("a"))
	expect[*protocol.LockGranted](a)
	ttl := int64(60_000)
	b.send(&protocol.LockRequest{RequestID: "own", Name: "own", TTLMillis: &ttl})
	token := expect[*protocol.LockGranted](b).FencingToken
	for range 3 {
		b.send(lockRequest("b"))
	}
	renewal := &protocol.LockRequest{RequestID: "renew", Name: "own", TTLMillis: &ttl, FencingToken: &token}
	b.send(renewal)
	m := b.next()
	for refusal, is := m.(*protocol.ErrorMessage); is; refusal, is = m.(*protocol.ErrorMessage) {
		require.NotEqual(t, failureOf(renewal, refusal.Code, refusal.Message), refusal) // others may be too many
		m = b.next()
	}
	require.Equal(t, "renew", m.(*protocol.LockGranted).RequestID)
	b.send(&protocol.LockRelease{RequestID: "release", Name: "own", FencingToken: token})
	require.True(t, expect[*protocol.LockReleased](b).Success)
}

// A client that stops waiting before its patience ends says so, or its places in the queue are
// taken until then, and it is refused for having too many.
func TestAWaitIsWithdrawn(t *testing.T) {
	f := start(t, func(cfg *Config, _ *Deps, _ *fakeBackend) { cfg.MaxRequests = 3 })
	a, b := f.dial(), f.dial()
	a.send(lockRequest("a"))
	token := expect[*protocol.LockGranted](a).FencingToken
	patience := time.Hour.Milliseconds()
	request := func(id string) *protocol.LockRequest {
		return &protocol.LockRequest{RequestID: id, Name: "jobs/nightly", WaitMillis: &patience}
	}
	for range 20 {
		b.send(request("b"))
		b.send(release("b", 0))
		require.Equal(t, &protocol.LockReleased{RequestID: "b", Name: "jobs/nightly", Reason: "the request was withdrawn"}, expect[*protocol.LockReleased](b))
		eventually(t, func() bool { return len(f.backend.machine.Lock("jobs/nightly").Waiters) == 0 }, "b waits no more")
	}
	b.send(request("b"))
	eventually(t, func() bool { return len(f.backend.machine.Lock("jobs/nightly").Waiters) == 1 }, "b waits")
	b.send(release("other", 0))
	require.Equal(t, "other", expect[*protocol.LockReleased](b).RequestID, "it is no request")
	a.send(release("b", 0))
	require.False(t, expect[*protocol.LockReleased](a).Success, "it is another connection's")
	a.send(release("a", token))
	expect[*protocol.LockReleased](a)
	require.Equal(t, "b", expect[*protocol.LockGranted](b).RequestID)
	b.send(release("b", 0))
	require.False(t, expect[*protocol.LockReleased](b).Success, "it is over")
	require.NotNil(t, f.backend.machine.Lock("jobs/nightly"))
}
