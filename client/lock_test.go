package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/protocol"
)

type granted struct {
	lock *client.Lock
	err  error
}

func lock(ctx context.Context, c *client.Client, opts ...client.LockOption) <-chan granted {
	done := make(chan granted, 1)
	go func() {
		l, err := c.Lock(ctx, "l", opts...)
		done <- granted{l, err}
	}()
	return done
}

func (p *peer) grant(m *protocol.LockRequest, token uint64) {
	p.send(&protocol.LockGranted{RequestID: m.RequestID, Name: m.Name, FencingToken: token})
}

// withdrawn takes the notice that nobody waits for a request any more.
func (p *peer) withdrawn(m *protocol.LockRequest) {
	p.t.Helper()
	require.Equal(p.t, &protocol.LockRelease{RequestID: m.RequestID, Name: m.Name}, next[*protocol.LockRelease](p))
}

// hold has the client hold the lock, and returns it when the grant is confirmed: a test may be
// so slow that the client wants its lease confirmed first.
func hold(t *testing.T, p *peer, done <-chan granted, token uint64) *client.Lock {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case m := <-p.got:
			request, ok := m.(*protocol.LockRequest)
			require.True(t, ok, "%T", m)
			p.grant(request, token)
		case g := <-done:
			require.NoError(t, g.err)
			require.Equal(t, token, g.lock.Token())
			return g.lock
		case <-deadline:
			t.Fatal("not granted")
		}
	}
}

func lost(t *testing.T, l *client.Lock) {
	t.Helper()
	select {
	case <-l.Lost():
		require.False(t, l.Held())
	case <-time.After(patience):
		t.Fatal("the lock is not lost")
	}
}

func TestALockIsRenewedUntilItIsReleased(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	done := lock(within(t), c, client.WithLease(time.Hour), client.RenewEvery(10*time.Millisecond))
	l := hold(t, p, done, 7)
	require.True(t, l.Held())
	require.Equal(t, client.Fence{Lock: "l", Token: 7}, l.Fence())
	renewal := next[*protocol.LockRequest](p)
	require.Equal(t, uint64(7), *renewal.FencingToken)
	require.Equal(t, time.Hour.Milliseconds(), *renewal.TTLMillis)
	p.complain(protocol.CodeUnavailable, "type", "LOCK_REQUEST", "requestId", renewal.RequestID)
	renewal = next[*protocol.LockRequest](p)
	before := l.Deadline()
	p.grant(renewal, 7)
	next[*protocol.LockRequest](p)
	require.True(t, l.Deadline().After(before))
	released := begin(func() error { return l.Release(within(t)) })
	release := next[*protocol.LockRelease](p)
	require.Equal(t, uint64(7), release.FencingToken)
	p.complain(protocol.CodeUnavailable, "type", "LOCK_RELEASE", "requestId", release.RequestID)
	again := next[*protocol.LockRelease](p)
	require.Equal(t, release, again)
	p.send(&protocol.LockReleased{RequestID: release.RequestID, Name: "l", Success: true})
	require.NoError(t, await(t, released))
	require.ErrorIs(t, l.Release(within(t)), client.ErrLockLost)
	select {
	case <-l.Lost():
		t.Error("released, not lost")
	default:
	}
}

func TestALockIsLost(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()

	t.Run("when the server says so", func(t *testing.T) {
		l := hold(t, p, lock(within(t), c, client.WithLease(time.Hour), client.RenewEvery(10*time.Millisecond)), 1)
		renewal := next[*protocol.LockRequest](p)
		p.send(&protocol.LockReleased{RequestID: renewal.RequestID, Name: "l", Reason: "gone"})
		lost(t, l)
		require.ErrorIs(t, l.Release(within(t)), client.ErrLockLost)
	})
	t.Run("when its lease is not confirmed", func(t *testing.T) {
		l := hold(t, p, lock(within(t), c, client.WithLease(300*time.Millisecond), client.RenewEvery(time.Hour)), 2)
		lost(t, l)
		// It is given back, and a grant of the same token is not taken.
		for {
			m := <-p.got
			if release, ok := m.(*protocol.LockRelease); ok {
				require.Equal(t, uint64(2), release.FencingToken)
				break
			}
		}
		done := lock(within(t), c, client.WithLease(time.Hour))
		p.grant(next[*protocol.LockRequest](p), 2)
		require.Equal(t, uint64(2), next[*protocol.LockRelease](p).FencingToken)
		l = hold(t, p, done, 3)
		release := begin(func() error { return l.Release(within(t)) })
		m := next[*protocol.LockRelease](p)
		p.send(&protocol.LockReleased{RequestID: m.RequestID, Name: "l", Reason: "it expired"})
		require.ErrorIs(t, await(t, release), client.ErrLockLost)
	})
	t.Run("when the connection ends", func(t *testing.T) {
		l := hold(t, p, lock(within(t), c, client.WithLease(time.Hour)), 4)
		p.cut()
		lost(t, l)
		p = f.accept()
	})
	t.Run("when the client is closed", func(t *testing.T) {
		l := hold(t, p, lock(within(t), c, client.WithLease(time.Hour)), 5)
		waiting := lock(within(t), c)
		require.NoError(t, c.Close())
		lost(t, l)
		require.ErrorIs(t, (<-waiting).err, client.ErrClosed)
	})
}

func TestARequestForALockIsMadeAgain(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	done := lock(within(t), c, client.WithLease(time.Hour))
	first := next[*protocol.LockRequest](p)
	p.cut()
	p = f.accept()
	second := next[*protocol.LockRequest](p)
	require.NotEqual(t, first.RequestID, second.RequestID, "the first died with its session")
	p.complain(protocol.CodeOverloaded, "type", "LOCK_REQUEST", "requestId", second.RequestID)
	third := next[*protocol.LockRequest](p)
	p.send(&protocol.LockReleased{Name: "l", Reason: "not in time"})
	fourth := next[*protocol.LockRequest](p)
	require.NotEqual(t, third.RequestID, fourth.RequestID)
	p.grant(fourth, 9)
	hold(t, p, done, 9)
}

func TestALateGrantIsGivenBack(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	ctx, cancel := context.WithCancel(within(t))
	done := lock(ctx, c)
	abandoned := next[*protocol.LockRequest](p)
	cancel()
	require.ErrorIs(t, (<-done).err, client.ErrNotGranted)
	p.withdrawn(abandoned)
	p.grant(abandoned, 3)
	require.Equal(t, uint64(3), next[*protocol.LockRelease](p).FencingToken)

	// With another request of the session under way, the grant is that one's, too.
	ctx, cancel = context.WithCancel(within(t))
	done = lock(ctx, c)
	abandoned = next[*protocol.LockRequest](p)
	cancel()
	require.ErrorIs(t, (<-done).err, client.ErrNotGranted)
	p.withdrawn(abandoned)
	done = lock(within(t), c, client.WithLease(time.Hour))
	request := next[*protocol.LockRequest](p)
	p.grant(abandoned, 4)
	p.grant(request, 4)
	l := hold(t, p, done, 4)
	p.grant(abandoned, 4)
	for range 2 { // the first is behind the grant, the second behind a release that it led to
		require.NoError(t, c.Publish(within(t), "t", nil))
		next[*protocol.TopicPub](p)
	}
	require.True(t, l.Held())
}

// Both grants are one hold to the server. Found by the chaos suite, seed 20261262: the caller's
// was not noted yet when the other was read and given back.
func TestAGrantBehindThatOfTheCallerIsTheSame(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	for token := uint64(1); token <= 20; token++ {
		ctx, cancel := context.WithCancel(within(t))
		done := lock(ctx, c)
		abandoned := next[*protocol.LockRequest](p)
		cancel()
		require.ErrorIs(t, (<-done).err, client.ErrNotGranted)
		p.withdrawn(abandoned)
		done = lock(within(t), c, client.WithLease(time.Hour))
		request := next[*protocol.LockRequest](p)
		p.grant(request, token)
		p.grant(abandoned, token)
		g := <-done
		require.NoError(t, g.err)
		require.NoError(t, c.Publish(within(t), "t", nil)) // returns when both grants were read
		next[*protocol.TopicPub](p)
		released := begin(func() error { return g.lock.Release(within(t)) })
		release := next[*protocol.LockRelease](p)
		p.send(&protocol.LockReleased{RequestID: release.RequestID, Name: "l", Success: true})
		require.NoError(t, await(t, released))
	}
}

func TestALeaseIsConfirmedAfterAWait(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	done := lock(within(t), c, client.WithLease(time.Hour), client.RenewEvery(time.Nanosecond))
	p.grant(next[*protocol.LockRequest](p), 1)
	renewal := next[*protocol.LockRequest](p)
	require.Equal(t, uint64(1), *renewal.FencingToken)
	select {
	case <-done:
		t.Error("the lease may be nearly over")
	default:
	}
	// What the server does not confirm is not held.
	p.send(&protocol.LockReleased{RequestID: renewal.RequestID, Name: "l", Reason: "gone"})
	require.Equal(t, uint64(1), next[*protocol.LockRelease](p).FencingToken)
	hold(t, p, done, 2)
}

func TestLocksAreAskedForInTurn(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	l := hold(t, p, lock(within(t), c, client.WithLease(time.Hour)), 1)
	_, err := c.TryLock(within(t), "l")
	require.ErrorIs(t, err, client.ErrNotGranted)
	waiting := lock(within(t), c, client.WithLease(time.Hour))
	released := begin(func() error { return l.Release(within(t)) })
	m := next[*protocol.LockRelease](p) // and not a request of the one who waits
	p.send(&protocol.LockReleased{RequestID: m.RequestID, Name: "l", Success: true})
	require.NoError(t, await(t, released))
	hold(t, p, waiting, 2)
	_, err = c.Lock(within(t), "l", client.WithLease(time.Millisecond))
	require.ErrorContains(t, err, "shorter")
	try := begin(func() error { _, err := c.TryLock(within(t), "other"); return err })
	request := next[*protocol.LockRequest](p)
	require.Zero(t, *request.WaitMillis)
	p.send(&protocol.LockReleased{Name: "other", Reason: "taken"})
	require.ErrorIs(t, await(t, try), client.ErrNotGranted)
	try = begin(func() error { _, err := c.Lock(within(t), "bad name"); return err })
	request = next[*protocol.LockRequest](p)
	p.complain(protocol.CodeMalformed, "type", "LOCK_REQUEST", "requestId", request.RequestID)
	p.send(&protocol.LockReleased{Name: "bad name", Reason: "because"})
	require.ErrorIs(t, await(t, try), client.ErrRefused)
}

// TestAReleaseInDoubtIsNotTakenForALoss: the second attempt finds nothing, because the first
// one, which was not answered, may have released the lock.
func TestAReleaseInDoubtIsNotTakenForALoss(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	l := hold(t, p, lock(within(t), c, client.RenewEvery(time.Hour)), 1)
	released := begin(func() error { return l.Release(within(t)) })
	p.complain(protocol.CodeUnavailable, "type", "LOCK_RELEASE", "name", "l", "requestId", next[*protocol.LockRelease](p).RequestID)
	again := next[*protocol.LockRelease](p)
	p.send(&protocol.LockReleased{RequestID: again.RequestID, Name: "l", Reason: "not held"})
	err := await(t, released)
	require.ErrorIs(t, err, client.ErrUnknown)
	require.NotErrorIs(t, err, client.ErrLockLost)
}
