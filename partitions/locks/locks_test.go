package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/partitions/notice"
	"github.com/quorate/quorate/protocol"
)

var errLost = errors.New("answer is lost")

// world is one group whose log is applied at once, and nodes that use it.
type world struct {
	t       *testing.T
	machine *fsm.Machine

	// mu protects the fields below and orders the log.
	mu     sync.Mutex
	index  uint64
	boards []*notice.Board
	leader int
	// fate is asked what becomes of a command: "" is applied, "lost" is not, "hidden"
	// is, without an answer, and "late" is later, without an answer; "stuck" is not, and
	// takes until the caller gives up.
	fate func(node int, cmd command.Raw) string
	// ended are the sessions of which everything was ended.
	ended map[lock.Session]bool
	// stall stops the keeper of a node once, and delay holds the next command back.
	stall, delay atomic.Int64
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, ended: map[lock.Session]bool{}, fate: func(int, command.Raw) string { return "" }}
	store := memory.New(memory.Config{})
	flusher, err := writebehind.New(writebehind.DefaultConfig(), writebehind.Deps{Logger: hclog.NewNullLogger(), Store: store})
	require.NoError(t, err)
	w.machine, err = fsm.Open(fsm.DefaultConfig(1), fsm.Deps{
		Logger: hclog.NewNullLogger(), Store: store, Flusher: flusher,
		OnChange: func(c *fsm.Changes) {
			for _, b := range w.boards {
				b.Publish(c)
			}
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.machine.Close() })
	return w
}

// node adds a node; the first one leads. Nodes without a replica ask the leader.
func (w *world) node(replica bool) *Service {
	w.mu.Lock()
	defer w.mu.Unlock()
	board, n := new(notice.Board), len(w.boards)
	w.boards = append(w.boards, board)
	cfg := DefaultConfig()
	cfg.Gateway = string(rune('a' + n))
	s := New(cfg, Deps{
		Logger: hclog.NewNullLogger(), Board: board,
		Groups: func() uint32 { return 1 }, GroupOf: func(string) uint32 { return 1 },
		Replica: func(uint32) (Replica, bool) { return w.machine, replica },
		Leads: func(uint32) bool {
			time.Sleep(time.Duration(w.stall.Swap(0)))
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.leader == n
		},
		Submit: func(ctx context.Context, _ uint32, cmd command.Raw) (command.Result, error) {
			return w.submit(ctx, n, cmd)
		},
		Refused: func(error) bool { return false },
	})
	w.t.Cleanup(s.Close)
	return s
}

func (w *world) submit(ctx context.Context, node int, cmd command.Raw) (command.Result, error) {
	delay := w.delay.Swap(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return command.Result{}, ctx.Err()
	}
	if delay > 0 {
		w.mu.Unlock()
		time.Sleep(time.Duration(delay))
		w.mu.Lock()
	}
	switch w.fate(node, cmd) {
	case "lost":
		return command.Result{}, errLost
	case "stuck":
		w.mu.Unlock()
		<-ctx.Done()
		w.mu.Lock()
		return command.Result{}, errLost
	case "hidden":
		w.apply(cmd)
		return command.Result{}, errLost
	case "late":
		time.AfterFunc(time.Duration(1+len(cmd.Body)%7)*time.Second, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.apply(cmd)
		})
		return command.Result{}, errLost
	default:
		return w.apply(cmd), nil
	}
}

// apply appends to the log; w.mu is held.
func (w *world) apply(cmd command.Raw) command.Result {
	w.index++
	stamp := protocol.Timestamp{Millis: int64(w.index)}
	results, err := w.machine.Apply([]fsm.Entry{{Index: w.index, Term: 1, Data: command.AppendEntry(nil, stamp, []command.Raw{cmd})}})
	if err != nil {
		panic(err)
	}
	if l := w.machine.Lock("l"); l != nil && w.ended[l.Holder.Session] {
		w.t.Errorf("%s gives the lock to %+v, which has ended", cmd.Kind, l.Holder)
	}
	return results[0][0]
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

func ask(ttl, patience time.Duration) Ask {
	return Ask{Name: "l", TTLMillis: ttl.Milliseconds(), Patience: patience}
}

func mustAcquire(t *testing.T, s *Service, session *Session, a Ask) uint64 {
	t.Helper()
	token, err := s.Acquire(t.Context(), session, a)
	require.NoError(t, err)
	return token
}

func TestWaitersGetTheLockInOrderAndTokensAscend(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b, far := w.node(true), w.node(true), w.node(false)
		holder := a.NewSession()
		first := mustAcquire(t, a, holder, ask(0, time.Minute))
		require.Equal(t, first, mustAcquire(t, a, holder, ask(0, time.Minute)), "a session holds it once")
		order := make(chan int, 3)
		tokens := make(chan uint64, 3)
		for i, s := range []*Service{b, far, a} {
			go func() {
				session := s.NewSession()
				token := mustAcquire(t, s, session, ask(0, time.Minute))
				order <- i
				tokens <- token
				_, _, err := s.Release(t.Context(), session, "l", token)
				require.NoError(t, err)
			}()
			synctest.Wait()
		}
		require.Empty(t, order)
		released, _, err := a.Release(t.Context(), holder, "l", first)
		require.NoError(t, err)
		require.True(t, released)
		last := first
		for i := range 3 {
			require.Equal(t, i, <-order)
			token := <-tokens
			require.Greater(t, token, last)
			last = token
		}
		released, reason, err := a.Release(t.Context(), holder, "l", first)
		require.NoError(t, err)
		require.True(t, released, "a repeat says what the first said: %s", reason)
		released, _, err = a.Release(t.Context(), holder, "l", last+1)
		require.NoError(t, err)
		require.False(t, released)
	})
}

func TestARequestIsGivenUpBeforeItsClientIs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node(true)
		holder, waiter := a.NewSession(), a.NewSession()
		token := mustAcquire(t, a, holder, ask(0, time.Minute))
		started := time.Now()
		_, err := a.Acquire(t.Context(), waiter, ask(0, 5*time.Second))
		require.ErrorIs(t, err, ErrNotGranted)
		require.Less(t, time.Since(started), 5*time.Second)
		_, _, err = a.Release(t.Context(), holder, "l", token)
		require.NoError(t, err)
		require.Nil(t, w.machine.Lock("l"), "nobody waits any more")
	})
}

func TestPatienceBeginsWithTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node(true)
		session := a.NewSession()
		late := ask(0, 5*time.Second)
		late.Asked = time.Now().Add(-5 * time.Second)
		_, err := a.Acquire(t.Context(), session, late)
		require.ErrorIs(t, err, ErrNotGranted)
		index, _ := w.machine.Applied()
		require.Zero(t, index, "nobody waits for it")

		w.delay.Store(int64(10 * time.Second)) // the grant comes after the client has given up
		_, err = a.Acquire(t.Context(), session, ask(0, 5*time.Second))
		require.ErrorIs(t, err, ErrNotGranted)
		synctest.Wait()
		index, _ = w.machine.Applied()
		require.Positive(t, index)
		require.Nil(t, w.machine.Lock("l"), "what nobody was told of is given back")
	})
}

func TestAFreeLockIsGrantedOverASlowLink(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node(true)
		holder, other := a.NewSession(), a.NewSession()
		w.delay.Store(int64(time.Second))
		token := mustAcquire(t, a, holder, ask(0, 0))
		started := time.Now()
		_, err := a.Acquire(t.Context(), other, ask(0, 0))
		require.ErrorIs(t, err, ErrNotGranted)
		require.Zero(t, time.Since(started), "who has no patience does not wait for the holder")
		require.Empty(t, w.machine.Lock("l").Waiters)
		_, _, err = a.Release(t.Context(), holder, "l", token)
		require.NoError(t, err)
		w.delay.Store(int64(300 * time.Millisecond))
		mustAcquire(t, a, other, ask(0, 500*time.Millisecond))
	})
}

func TestAGroupThatDoesNotAnswerIsNoDenial(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.fate = func(int, command.Raw) string { return "stuck" }
		a := w.node(true)
		for _, patience := range []time.Duration{0, time.Second, time.Hour} {
			started := time.Now()
			request := ask(0, patience)
			request.Timeout = 10 * time.Second
			_, err := a.Acquire(t.Context(), a.NewSession(), request)
			require.ErrorIs(t, err, ErrUnreachable)
			require.NotErrorIs(t, err, ErrNotGranted)
			require.LessOrEqual(t, time.Since(started), 11*time.Second)
		}
	})
}

func TestASessionForgetsLocksThatItAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node(true)
		session, other := a.NewSession(), a.NewSession()
		for i := range 100 {
			name := fmt.Sprint("lock", i)
			token := mustAcquire(t, a, session, Ask{Name: name, TTLMillis: 1000, Patience: time.Minute})
			if i%2 == 0 {
				_, _, err := a.Release(t.Context(), other, name, token)
				require.NoError(t, err)
			}
		}
		time.Sleep(2 * time.Second)
		require.Empty(t, w.machine.Locks())
		require.Empty(t, session.unsettled)
		require.Zero(t, session.count)
	})
}

// TestARequestThatIsGivenUpLeavesTheHoldOfAnEarlierOne holds that what ends a request for a
// lock that the session holds already does not release it.
func TestARequestThatIsGivenUpLeavesTheHoldOfAnEarlierOne(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node(true)
		session := a.NewSession()
		token := mustAcquire(t, a, session, ask(0, time.Minute))
		w.set(func() { w.fate = func(int, command.Raw) string { return "lost" } })
		_, err := a.Acquire(t.Context(), session, ask(0, time.Second))
		require.ErrorIs(t, err, ErrUnreachable)
		w.set(func() { w.fate = func(int, command.Raw) string { return "hidden" } })
		w.delay.Store(int64(2 * time.Second))
		_, err = a.Acquire(t.Context(), session, ask(0, time.Second))
		require.ErrorIs(t, err, ErrUnreachable)
		synctest.Wait()
		w.set(func() { w.fate = func(int, command.Raw) string { return "" } })
		w.delay.Store(int64(2 * time.Second)) // the grant is late, so it is given back, but for the hold
		_, err = a.Acquire(t.Context(), session, ask(0, time.Second))
		require.ErrorIs(t, err, ErrNotGranted)
		synctest.Wait()
		require.Equal(t, token, w.machine.Lock("l").Token)
	})
}

func TestLeasesEndAndAreRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node(true)
		session := a.NewSession()
		token := mustAcquire(t, a, session, ask(10*time.Second, time.Minute))
		time.Sleep(8 * time.Second)
		held, err := a.Renew(t.Context(), "l", token, 20_000)
		require.NoError(t, err)
		require.True(t, held)
		time.Sleep(19 * time.Second)
		require.NotNil(t, w.machine.Lock("l"), "the lease was renewed")
		time.Sleep(2 * time.Second)
		require.Nil(t, w.machine.Lock("l"))
		held, err = a.Renew(t.Context(), "l", token, 20_000)
		require.NoError(t, err)
		require.False(t, held, "what is over is not renewed")
		released, reason, err := a.Release(t.Context(), session, "l", token)
		require.NoError(t, err)
		require.False(t, released)
		require.Contains(t, reason, "expired")
	})
}

// leasesLastAcrossLeaders holds that each leader gives every lease its full time, whatever
// other nodes have measured.
func leasesLastAcrossLeaders(t *testing.T) (err error) {
	bubble(t, func(t *testing.T, w *world) {
		_, b := w.node(true), w.node(true)
		token := mustAcquire(t, b, b.NewSession(), ask(10*time.Second, time.Minute))
		time.Sleep(9 * time.Second)
		for leader := range 3 {
			w.set(func() { w.leader = 1 - leader%2 })
			time.Sleep(9 * time.Second)
			if l := w.machine.Lock("l"); l == nil || l.Token != token {
				err = fmt.Errorf("the lease of token %d has ended early: %+v", token, l)
				return
			}
		}
		time.Sleep(2 * time.Second)
		if l := w.machine.Lock("l"); l != nil {
			err = fmt.Errorf("the lease has not ended: %+v", l)
		}
	})
	return err
}

func TestANewLeaderGivesEveryLeaseItsFullTime(t *testing.T) {
	require.NoError(t, leasesLastAcrossLeaders(t))
}

func TestAStoppedProcessDoesNotEndLeases(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.node(true)
		mustAcquire(t, a, a.NewSession(), ask(2*time.Second, time.Minute))
		time.Sleep(time.Second)
		w.stall.Store(int64(10 * time.Second)) // of the next tick
		time.Sleep(10*time.Second + 150*time.Millisecond)
		require.NotNil(t, w.machine.Lock("l"), "the time in which nothing ran does not count")
		time.Sleep(2 * time.Second)
		require.Nil(t, w.machine.Lock("l"))
	})
}

func TestTheEndOfASessionReleasesAndCancels(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.node(true), w.node(true)
		holder, waiter, next := a.NewSession(), a.NewSession(), b.NewSession()
		mustAcquire(t, a, holder, ask(0, time.Minute))
		ctx, hangUp := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := a.Acquire(ctx, waiter, ask(0, time.Minute))
			ended <- err
		}()
		synctest.Wait()
		granted := make(chan uint64, 1)
		go func() { granted <- mustAcquire(t, b, next, ask(0, time.Minute)) }()
		synctest.Wait()
		hangUp()
		require.NoError(t, a.End(t.Context(), waiter))
		require.ErrorIs(t, <-ended, ErrNotGranted)
		require.NoError(t, a.End(t.Context(), holder))
		<-granted
		_, err := a.Acquire(t.Context(), holder, ask(0, time.Minute))
		require.ErrorIs(t, err, ErrEnded)
	})
}

func TestASilentGatewayLosesItsSessions(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		_, b := w.node(true), w.node(true)
		mustAcquire(t, b, b.NewSession(), ask(0, time.Minute))
		time.Sleep(10 * time.Minute)
		require.NotNil(t, w.machine.Lock("l"), "it beats")
		w.set(func() {
			w.fate = func(node int, _ command.Raw) string {
				if node == 1 {
					return "lost"
				}
				return ""
			}
		})
		time.Sleep(19 * time.Second) // the last beat was up to 10 s ago
		require.NotNil(t, w.machine.Lock("l"))
		time.Sleep(12 * time.Second)
		require.Nil(t, w.machine.Lock("l"))
	})
}

// TestNoLockIsLeftBehindAndNoneIsHeldTwice has sessions of three nodes fight for a lock
// over a log that loses, hides and delays.
func TestNoLockIsLeftBehindAndNoneIsHeldTwice(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	bubble(t, func(t *testing.T, w *world) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		w.fate = func(_ int, cmd command.Raw) string {
			if cmd.Kind == command.KindBeat {
				return "" // a node that is not heard of loses its locks
			}
			return []string{"", "", "", "lost", "hidden", "late"}[rnd.IntN(6)]
		}
		nodes := []*Service{w.node(true), w.node(true), w.node(false)}
		var mu sync.Mutex
		holder, greatest := 0, uint64(0)
		var work sync.WaitGroup
		for i := range 12 {
			s := nodes[i%3]
			work.Go(func() {
				for range 20 {
					session := s.NewSession()
					token, err := s.Acquire(t.Context(), session, ask(0, time.Duration(1+i)*time.Second))
					if err == nil {
						mu.Lock()
						if holder != 0 || token <= greatest {
							t.Errorf("%d gets token %d while %d has the lock; the greatest was %d", i+1, token, holder, greatest)
						}
						holder, greatest = i+1, token
						mu.Unlock()
						time.Sleep(time.Duration(i) * 100 * time.Millisecond)
						mu.Lock()
						holder = 0
						mu.Unlock()
					}
					for s.End(t.Context(), session) != nil {
						time.Sleep(time.Second)
					}
					w.set(func() { w.ended[session.id] = true })
				}
			})
		}
		work.Wait()
		time.Sleep(time.Minute)
		require.Nil(t, w.machine.Lock("l"))
		require.Positive(t, greatest)
	})
}
