package partitions

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/partitions/locks"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/partitions/topics"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ops(n int) []Op {
	list := make([]Op, n)
	for i := range list {
		list[i] = op(fmt.Sprintf("key-%03d", i), fakeNow)
	}
	return list
}

func deadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestAWriteOnAnyNodeReachesTheLeadersOfAllItsGroups(t *testing.T) {
	c := newFakeCluster(t, 3)
	for node := 1; node <= 3; node++ {
		r := c.router(node)
		list := ops(50)
		for i := range list {
			list[i].Key = fmt.Sprintf("%s-from-%d", list[i].Key, node)
		}
		verdicts, err := r.Write(deadline(t, 10*time.Second), r.NewSession(), list)
		require.NoError(t, err)
		require.Len(t, verdicts, 50)
		for _, v := range verdicts {
			require.Equal(t, Verdict{Level: protocol.LevelPersisted}, v)
		}
	}
	require.Len(t, c.keys(t), 150)
}

func TestVerdictsKeepTheOrderOfTheOperations(t *testing.T) {
	c := newFakeCluster(t, 3)
	c.refuse["key-007"] = protocol.CodeStale
	verdicts, err := c.router(2).Write(deadline(t, 10*time.Second), c.router(2).NewSession(), ops(20))
	require.NoError(t, err)
	for i, v := range verdicts {
		require.Equal(t, i == 7, v.Refused(), "operation %d", i)
	}
	require.Equal(t, Verdict{Code: protocol.CodeStale, Reason: "key-007"}, verdicts[7])
}

func TestMemoryOnlyStorageNeverReportsPersisted(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.Durable = false })
	o := op("k", fakeNow)
	o.Level = protocol.LevelPersisted
	verdicts, err := c.router(1).Write(deadline(t, 10*time.Second), c.router(1).NewSession(), []Op{o})
	require.NoError(t, err)
	require.Equal(t, protocol.LevelReplicated, verdicts[0].Level)
}

func TestAnUnknownOutcomeIsOfferedAgainUntilItIsKnown(t *testing.T) {
	for _, outcome := range []string{"unknown", "lost", "busy"} {
		c := newFakeCluster(t, 3)
		c.fail = func(_ uint32, attempt int) string {
			if attempt < 4 {
				return outcome
			}
			return ""
		}
		verdicts, err := c.router(1).Write(deadline(t, 20*time.Second), c.router(1).NewSession(), ops(10))
		require.NoError(t, err, outcome)
		for _, v := range verdicts {
			require.False(t, v.Refused())
		}
	}
}

func TestAnOutcomeThatStaysUnknownIsNeverAnswered(t *testing.T) {
	c := newFakeCluster(t, 3)
	c.fail = func(uint32, int) string { return "lost" }
	_, err := c.router(1).Write(deadline(t, 500*time.Millisecond), c.router(1).NewSession(), ops(1))
	require.ErrorIs(t, err, ErrUnknown)
	require.NotErrorIs(t, err, ErrUnavailable)
}

func TestWithoutALeaderNothingIsProposedAndTheCallerIsTold(t *testing.T) {
	c := newFakeCluster(t, 3)
	clear(c.leader)
	_, err := c.router(1).Write(deadline(t, 20*time.Second), c.router(1).NewSession(), ops(10))
	require.ErrorIs(t, err, ErrUnavailable)
	require.NotErrorIs(t, err, ErrUnknown)
	// The write was withdrawn: a leader that appears now is not given it.
	c.set(func() {
		for g := range uint32(6) {
			c.leader[g+1] = "n1#1"
		}
	})
	_, err = c.router(1).Write(deadline(t, 20*time.Second), c.router(1).NewSession(), []Op{op("later", fakeNow)})
	require.NoError(t, err)
	require.Equal(t, []string{"later"}, c.keys(t))
}

func TestAPartlyProposedWriteIsNeverReportedAsNotApplied(t *testing.T) {
	c := newFakeCluster(t, 3)
	orphan := placement.GroupOf("key-000", 6)
	delete(c.leader, orphan)
	_, err := c.router(1).Write(deadline(t, time.Second), c.router(1).NewSession(), ops(30))
	require.ErrorIs(t, err, ErrUnknown)
	require.NotErrorIs(t, err, ErrUnavailable)
	require.NotEmpty(t, c.keys(t))
}

func TestAWriteFollowsTheLeaderWhereverItMoves(t *testing.T) {
	c := newFakeCluster(t, 3, func(cfg *Config) { cfg.Patience = 20 * time.Second })
	c.nodes["n2#1"].down = true
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		require.Eventually(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.applied) == 4 }, 10*time.Second, time.Millisecond)
		c.set(func() {
			for g, id := range c.leader {
				if id == "n2#1" {
					c.leader[g] = "n3#1"
				}
			}
		})
	}()
	_, err := c.router(1).Write(deadline(t, 20*time.Second), c.router(1).NewSession(), ops(60))
	require.NoError(t, err)
	<-moved
	require.Len(t, c.keys(t), 60)
}

func TestMemoryIsAcknowledgedWhenQueuedAndSeenThrough(t *testing.T) {
	c := newFakeCluster(t, 3)
	c.hold = make(chan struct{})
	c.fail = func(_ uint32, attempt int) string {
		if attempt == 1 {
			return "lost"
		}
		return ""
	}
	list := ops(12)
	for i := range list {
		list[i].Level = protocol.LevelMemory
	}
	verdicts, err := c.router(1).Write(deadline(t, 10*time.Second), c.router(1).NewSession(), list)
	require.NoError(t, err, "acknowledged although nothing is committed yet")
	for _, v := range verdicts {
		require.Equal(t, protocol.LevelMemory, v.Level)
	}
	require.Empty(t, c.keys(t))
	close(c.hold)
	require.Eventually(t, func() bool { return len(c.keys(t)) == 12 }, 10*time.Second, time.Millisecond)
}

func TestAStrongerOperationInTheBatchMakesTheWholeBatchWait(t *testing.T) {
	c := newFakeCluster(t, 1)
	list := ops(2)
	list[0].Level, list[1].Level = protocol.LevelMemory, protocol.LevelApplied
	verdicts, err := c.router(1).Write(deadline(t, 10*time.Second), c.router(1).NewSession(), list)
	require.NoError(t, err)
	require.Equal(t, protocol.LevelPersisted, verdicts[0].Level)
	require.Len(t, c.keys(t), 2)
}

func TestAStampFromTheFutureIsReplacedAndTheClockDoesNotFollow(t *testing.T) {
	c := newFakeCluster(t, 1)
	r := c.router(1)
	list := []Op{op("near", fakeNow+60_000), op("far", fakeNow+60_001)}
	_, err := r.Write(deadline(t, 10*time.Second), r.NewSession(), list)
	require.NoError(t, err)
	require.Equal(t, int64(fakeNow+60_000), c.nodes["n1#1"].clock.newest.Millis)
	for _, cmds := range c.applied {
		for _, cmd := range cmds {
			put, err := command.DecodePut(cmd)
			require.NoError(t, err)
			far := put.Key == "far"
			require.Equal(t, far, put.Stamped, put.Key)
			require.Equal(t, far, put.Dedup != "", put.Key)
			require.False(t, put.Overwrite)
			require.Equal(t, far, put.Record.Timestamp.IsZero())
		}
	}
}

// A fenced write has an id, by which its repeat is known when its stamp is the future no more.
func TestAWriteWithAnIDKeepsItWhenItsStampIsReplaced(t *testing.T) {
	c := newFakeCluster(t, 1)
	put := command.Put{Map: "m", Key: "k", Dedup: "id", Fence: command.Fence{Lock: "l", Token: 7}}
	put.Record = op("k", fakeNow+3_600_000).Record
	admitted, err := c.router(1).admit([]raftnode.Command{command.EncodePut(put)})
	require.NoError(t, err)
	got, err := command.DecodePut(admitted[0])
	require.NoError(t, err)
	require.True(t, got.Stamped)
	require.Equal(t, "id", got.Dedup)
}

// A physical clock that was set back must not make the present look like the future.
func TestWhatTheClusterHasReachedIsNotTheFuture(t *testing.T) {
	c := newFakeCluster(t, 1)
	r := c.router(1)
	c.nodes["n1#1"].clock.Update(protocol.Timestamp{Millis: fakeNow + 3_600_000})
	list := []Op{op("reached", fakeNow+3_600_000), op("beyond", fakeNow+3_600_001)}
	_, err := r.Write(deadline(t, 10*time.Second), r.NewSession(), list)
	require.NoError(t, err)
	for _, cmds := range c.applied {
		for _, cmd := range cmds {
			put, err := command.DecodePut(cmd)
			require.NoError(t, err)
			require.Equal(t, put.Key == "beyond", put.Stamped, put.Key)
		}
	}
	require.Len(t, c.keys(t), 2)
}

func TestAnOperationWithoutTimestampIsStampedOnceHoweverOftenItIsOffered(t *testing.T) {
	c := newFakeCluster(t, 1)
	c.fail = func(_ uint32, attempt int) string {
		if attempt < 3 {
			return "unknown"
		}
		return ""
	}
	r := c.router(1)
	o := op("k", 0)
	o.Record.Timestamp = protocol.Timestamp{}
	_, err := r.Write(deadline(t, 10*time.Second), r.NewSession(), []Op{o})
	require.NoError(t, err)
	var keys []string
	for _, cmds := range c.applied {
		for _, cmd := range cmds {
			put, err := command.DecodePut(cmd)
			require.NoError(t, err)
			require.True(t, put.Stamped && put.Overwrite)
			keys = append(keys, put.Dedup)
		}
	}
	require.Len(t, keys, 3)
	require.NotEmpty(t, keys[0])
	require.Equal(t, []string{keys[0], keys[0], keys[0]}, keys)
}

func TestAForwardReplyThatMakesNoSenseIsUnknown(t *testing.T) {
	for _, reply := range [][]byte{nil, {forwardUnknown}, {99}, {forwardDone, 0xff}} {
		_, err := decodeForwardReply(1, reply)
		require.ErrorIs(t, err, raftnode.ErrUnknown, "%v", reply)
		require.False(t, notAppended(err))
	}
}

func TestAMalformedForwardRequestIsRefusedBeforeAnythingIsProposed(t *testing.T) {
	c := newFakeCluster(t, 1)
	for _, body := range [][]byte{nil, {0, 0, 0}, {0, 0, 0, 1, 0, 0xff, 0xff}} {
		_, err := c.nodes["n1#1"].handler(context.Background(), muxPeer, body)
		require.Error(t, err)
		require.True(t, notAppended(err))
	}
	require.Empty(t, c.keys(t))
}

// A command of a newer build would stop the replicas of this one.
func TestACommandOfAnotherBuildIsNotProposed(t *testing.T) {
	c := newFakeCluster(t, 1)
	for _, cmd := range []command.Raw{{Kind: command.KindPut, Version: 99, Body: []byte{1}}, {Kind: 99, Version: 1}} {
		entry := command.AppendEntry([]byte{0, 0, 0, 1, 0}, protocol.Timestamp{}, []command.Raw{command.EncodeRead(), cmd})
		_, err := c.nodes["n1#1"].handler(context.Background(), muxPeer, entry)
		require.Error(t, err)
		require.True(t, notAppended(err))
	}
	require.Empty(t, c.applied)
}

func TestOnlyErrorsOfRequestsThatDidNotRunPromiseThatNothingWasAppended(t *testing.T) {
	for code, promise := range map[uint16]bool{
		codeUnreadable: true, mux.CodeNoMethod: true, mux.CodeBusy: true, mux.CodeInternal: false, mux.CodeReplyTooLarge: false,
	} {
		require.Equal(t, promise, notAppended(&mux.RemoteError{Code: code}), "code %d", code)
	}
	require.False(t, notAppended(mux.ErrNoReply))
	require.True(t, notAppended(fmt.Errorf("propose: %w", raftnode.ErrTooLarge)))
}

func TestLargeWritesTravelAlone(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.RequestBytes = 1000 })
	l := c.router(1).lane(1)
	w := newWrite(context.Background(), nil, ops(3))
	for _, size := range []int{600, 600, 5000} {
		l.queue = append(l.queue, &part{write: w, cmds: make([]raftnode.Command, 1), bytes: size})
	}
	for range 3 {
		require.Len(t, l.takeLocked(), 1)
	}
	require.Empty(t, l.queue)
}

// barrierMarksEveryGroup holds that a confirmed read waits for what is in the log of every
// group, and that there is none without a leader.
func barrierMarksEveryGroup(t *testing.T) error {
	c := newFakeCluster(t, 3)
	r := c.router(2)
	s := r.NewSession()
	if err := r.Barrier(deadline(t, 10*time.Second), s); err != nil {
		return err
	}
	for group := uint32(1); group <= 6; group++ {
		if s.index(group) == 0 || len(c.applied[group]) != 1 || c.applied[group][0].Kind != command.KindRead {
			return fmt.Errorf("reads of group %d wait for %d in a log of %v", group, s.index(group), c.applied[group])
		}
	}
	c.set(func() { c.leader[3] = "" })
	if err := r.Barrier(deadline(t, 300*time.Millisecond), s); !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("without a leader: %w", err)
	}
	return nil
}

func TestABarrierIsAMarkInTheLogOfEveryGroup(t *testing.T) {
	require.NoError(t, barrierMarksEveryGroup(t))
}

func TestABarrierDoesNotWaitForLong(t *testing.T) {
	require.Equal(t, 2*time.Second, DefaultConfig().ConfirmTimeout)
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.ConfirmTimeout, cfg.Patience = 50*time.Millisecond, time.Hour })
	hold := make(chan struct{})
	c.set(func() { c.hold = hold }) // proposed, and not committed
	ctx := deadline(t, time.Minute)
	require.ErrorIs(t, c.router(1).Barrier(ctx, c.router(1).NewSession()), ErrUnavailable)
	require.NoError(t, ctx.Err(), "it was not the caller who gave up")
	close(hold)
	c.set(func() { c.leader = map[uint32]raftnode.ServerID{} }) // not proposed
	require.ErrorIs(t, c.router(1).Barrier(ctx, c.router(1).NewSession()), ErrUnavailable)
	require.NoError(t, ctx.Err())
}

func TestWithoutAClusterNamesHaveNoGroup(t *testing.T) {
	c := newFakeCluster(t, 1)
	deps := c.router(1).deps
	deps.Cluster = func() *system.State { return nil }
	r := New(c.router(1).cfg, deps)
	defer r.Close()
	s := r.NewSession()
	ctx := deadline(t, 10*time.Second)
	_, err := r.AcquireLock(ctx, s, locks.Ask{Name: "l", Patience: time.Second})
	require.ErrorIs(t, err, locks.ErrNoCluster)
	_, _, err = r.ReleaseLock(ctx, s, "l", 1)
	require.ErrorIs(t, err, locks.ErrNoCluster)
	_, _, err = r.AddToCounter(ctx, s, "c", 1, "")
	require.ErrorIs(t, err, ErrUnavailable)
	_, err = r.Counter(ctx, s, "c")
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, r.Barrier(ctx, s), ErrUnavailable)
	require.False(t, r.Publish(&topics.Message{Topic: "t"}))
	for group := uint32(1); group <= 6; group++ {
		require.Empty(t, c.applied[group], "what was asked for before is not brought to the wrong group")
	}
}
