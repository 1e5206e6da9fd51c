package ws

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/partitions/locks"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
)

// lockPatience is how much longer than the lease clients wait for a lock, and how long
// without a lease.
const lockPatience = 5 * time.Second

// maxLease is the longest lease that a client can ask for. A hold that is to last longer is
// renewed, or asked for without a lease, and ends with its connection.
const maxLease = 24 * time.Hour

// leaveTime is how long the end of a connection waits for the end of its locks.
const leaveTime = 5 * time.Second

// receiveLockRequest handles LOCK_REQUEST. Clients take any LOCK_RELEASED with the id of
// their request for a grant, whatever it says. So a request that is not granted is told
// by one without id, and clients that wait for theirs see none.
func (c *conn) receiveLockRequest(m *protocol.LockRequest) {
	if r := checkLockRequest(m); r.Refused() {
		c.reply(failureOf(m, r.Code, r.Reason))
		c.reply(&protocol.LockReleased{Name: m.Name, Reason: r.Reason})
		return
	}
	// The client counts from when it sent the request, whatever that waits for here.
	asked, purpose := time.Now(), asking
	if m.FencingToken != nil {
		purpose = keeping
	}
	ctx, over := c.asks.enter(c.ctx, m.RequestID, m.Name)
	begun := c.inTurn(&c.locks, m, m.Name, purpose, func(leave func()) {
		defer over()
		started := time.Now()
		outcome := "ok"
		if m.FencingToken != nil {
			c.renewLock(m)
		} else if err := c.acquireLock(ctx, m, asked, leave); err != nil {
			outcome = "refused"
		}
		c.srv.metrics.operations(serviceLock, outcome, 1, time.Since(started))
	})
	if !begun {
		over()
	}
}

func checkLockRequest(m *protocol.LockRequest) judge.Refusal {
	if r := judge.Name("lock", m.Name); r.Refused() {
		return r
	}
	switch {
	case m.TTLMillis != nil && *m.TTLMillis <= 0:
		return judge.Refusal{Code: protocol.CodeMalformed, Reason: "ttl is not above 0"}
	case m.TTLMillis != nil && *m.TTLMillis > maxLease.Milliseconds():
		return judge.Refusal{Code: protocol.CodeMalformed, Reason: fmt.Sprintf("ttl is above %d", maxLease.Milliseconds())}
	case m.WaitMillis != nil && *m.WaitMillis < 0:
		return judge.Refusal{Code: protocol.CodeMalformed, Reason: "waitMs is below 0"}
	case m.FencingToken != nil && m.TTLMillis == nil:
		return judge.Refusal{Code: protocol.CodeMalformed, Reason: "a renewal needs a ttl"}
	default:
		return judge.Refusal{}
	}
}

func (c *conn) acquireLock(ctx context.Context, m *protocol.LockRequest, asked time.Time, decided func()) error {
	ask := locks.Ask{Name: m.Name, Asked: asked, Patience: patienceOf(m), Timeout: c.srv.cfg.OperationTimeout, Decided: decided}
	if m.TTLMillis != nil {
		ask.TTLMillis = *m.TTLMillis
	}
	token, err := c.backend.AcquireLock(ctx, c.session, ask)
	switch {
	case err == nil:
		c.reply(&protocol.LockGranted{RequestID: m.RequestID, Name: m.Name, FencingToken: token})
	case errors.Is(context.Cause(ctx), errWithdrawn):
		c.reply(&protocol.LockReleased{RequestID: m.RequestID, Name: m.Name, Reason: errWithdrawn.Error()})
	default:
		if errors.Is(err, locks.ErrFull) {
			c.srv.metrics.limit("locks")
		}
		if code := lockCode(err); code != 0 {
			c.reply(failureOf(m, code, lockReason(err)))
		}
		c.srv.log.Debug("lock was not granted", "conn", c.id, "lock", m.Name, "err", err)
		c.reply(&protocol.LockReleased{Name: m.Name, Reason: lockReason(err)})
	}
	return err
}

// lockCode is that of the ERROR about a request that was not granted, zero if the lock was
// in other hands.
func lockCode(err error) protocol.Code {
	switch {
	case errors.Is(err, locks.ErrFull):
		return protocol.CodeOverloaded
	case errors.Is(err, locks.ErrNotGranted), errors.Is(err, locks.ErrEnded):
		return 0
	default:
		return protocol.CodeUnavailable
	}
}

// lockReason is what clients are told about a request that was not granted.
func lockReason(err error) string {
	for _, known := range []error{locks.ErrNotGranted, locks.ErrUnreachable, locks.ErrEnded, locks.ErrFull, locks.ErrNoCluster, partitions.ErrUnavailable} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "the request for the lock failed"
}

// patienceOf is how long the client waits for an answer, zero if it does not wait for the
// holder of the lock.
func patienceOf(m *protocol.LockRequest) time.Duration {
	const most = int64(math.MaxInt64 / 2 / time.Millisecond)
	switch {
	case m.WaitMillis != nil:
		return time.Duration(min(*m.WaitMillis, most)) * time.Millisecond
	case m.TTLMillis != nil:
		return time.Duration(min(*m.TTLMillis, most))*time.Millisecond + lockPatience
	default:
		return lockPatience
	}
}

// renewLock begins a lease anew. The answer has the id of the request either way: only
// clients that know of renewals ask for them.
func (c *conn) renewLock(m *protocol.LockRequest) {
	ctx, cancel := context.WithTimeout(c.ctx, c.srv.cfg.OperationTimeout)
	defer cancel()
	held, err := c.backend.RenewLock(ctx, m.Name, *m.FencingToken, *m.TTLMillis)
	switch {
	case err != nil: // the client asks again, or takes the lock for lost in time
		c.reply(failureOf(m, protocol.CodeUnavailable, "renewal is not confirmed"))
	case held:
		c.reply(&protocol.LockGranted{RequestID: m.RequestID, Name: m.Name, FencingToken: *m.FencingToken})
	default:
		c.reply(&protocol.LockReleased{RequestID: m.RequestID, Name: m.Name, Reason: "the token does not hold the lock"})
	}
}

// receiveLockRelease handles LOCK_RELEASE. Without an outcome there is no answer but an
// ERROR; the client may release again, and is told what the first time did. No hold has the
// token 0: with it, and the id of a request that waits, the request is withdrawn, and its
// answer is the one to both.
func (c *conn) receiveLockRelease(m *protocol.LockRelease) {
	if r := judge.Name("lock", m.Name); r.Refused() {
		c.reply(&protocol.LockReleased{RequestID: m.RequestID, Name: m.Name, Reason: r.Reason})
		return
	}
	if m.FencingToken == 0 {
		if !c.asks.withdraw(m.RequestID, m.Name) {
			c.reply(&protocol.LockReleased{RequestID: m.RequestID, Name: m.Name, Reason: "the token does not hold the lock"})
		}
		return
	}
	c.inTurn(&c.locks, m, m.Name, keeping, func(leave func()) {
		started := time.Now()
		ctx, cancel := context.WithTimeout(c.srv.base, c.srv.cfg.OperationTimeout)
		defer cancel()
		released, reason, err := c.backend.ReleaseLock(ctx, c.session, m.Name, m.FencingToken)
		if err != nil {
			c.srv.metrics.operations(serviceLock, "unknown", 1, time.Since(started))
			c.reply(failureOf(m, protocol.CodeUnavailable, "release is not confirmed"))
			return
		}
		c.srv.metrics.operations(serviceLock, "ok", 1, time.Since(started))
		c.reply(&protocol.LockReleased{RequestID: m.RequestID, Name: m.Name, Success: released, Reason: reason})
	})
}

// leaveLocks ends the locks of a connection that is over.
func (c *conn) leaveLocks() {
	ctx, cancel := context.WithTimeout(c.srv.base, leaveTime)
	defer cancel()
	c.backend.EndSession(ctx, c.session)
}
