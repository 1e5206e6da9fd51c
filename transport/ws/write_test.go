package ws

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

func TestClientOpIsAcknowledgedByItsID(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(&protocol.ClientOpMessage{Op: put("41", "todos", "t9", 7)})
	require.Equal(t, &protocol.OpAck{LastID: "41", AchievedLevel: protocol.LevelPersisted}, expect[*protocol.OpAck](c))
	written := f.backend.written()
	require.Len(t, written, 1)
	require.Equal(t, partitions.Op{Map: "todos", Key: "t9", Record: record(7, testNow+7)}, written[0])
}

func TestAllAcceptedLeavesResultsOut(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(batch(put("1", "m", "a", 1), put("2", "m", "b", 2), put("3", "n", "c", 3)))
	require.Equal(t, &protocol.OpAck{LastID: "3", AchievedLevel: protocol.LevelPersisted}, expect[*protocol.OpAck](c))
	require.Len(t, f.backend.written(), 3)
}

func TestRefusalsComeBeforeTheAckAndResultsListTheAccepted(t *testing.T) {
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.verdict = func(op partitions.Op) partitions.Verdict {
			if op.Key == "stale" {
				return partitions.Verdict{Code: protocol.CodeStale, Reason: "newer token"}
			}
			return partitions.Verdict{Level: protocol.LevelReplicated}
		}
	})
	c := f.dial()
	c.send(batch(put("1", "m", "a", 1), put("2", "$SYS/x", "b", 2), put("3", "m", "stale", 3), put("4", "m", "d", 4)))
	require.Equal(t, &protocol.OpRejected{OpID: "2", Reason: "map is reserved for the server", Code: protocol.CodeForbidden, Permanent: true},
		expect[*protocol.OpRejected](c))
	require.Equal(t, &protocol.OpRejected{OpID: "3", Reason: "newer token", Code: protocol.CodeStale, Permanent: true},
		expect[*protocol.OpRejected](c))
	ack := expect[*protocol.OpAck](c)
	require.Equal(t, "4", ack.LastID)
	require.Equal(t, protocol.LevelReplicated, ack.AchievedLevel)
	require.Equal(t, []string{"1", "4"}, resultIDs(ack))
	for _, r := range ack.Results {
		require.True(t, r.Success)
		require.Equal(t, protocol.LevelReplicated, r.AchievedLevel)
	}
}

func TestAllRefusedIsAcknowledgedWithNoResults(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(batch(put("1", "_service_x", "a", 1), put("2", "", "b", 2)))
	require.Equal(t, protocol.CodeForbidden, expect[*protocol.OpRejected](c).Code)
	require.Equal(t, protocol.CodeMalformed, expect[*protocol.OpRejected](c).Code)
	ack := expect[*protocol.OpAck](c)
	require.Equal(t, "2", ack.LastID)
	require.NotNil(t, ack.Results)
	require.Empty(t, ack.Results)
	require.Empty(t, f.backend.written())
}

func TestWritesWithoutIDsAreAppliedAndNotAcknowledged(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(batch(put("", "m", "a", 1), put("", "$sys/", "b", 2)))
	c.send(batch())
	eventually(t, func() bool { return len(f.backend.written()) == 1 }, "applied")
	c.silent()
	c.send(batch(put("x-9", "m", "b", 1), put("", "m", "c", 2)))
	require.Equal(t, "x-9", expect[*protocol.OpAck](c).LastID, "the last id, verbatim")
}

func TestFireAndForgetIsProposedAndNeverAcknowledged(t *testing.T) {
	f := start(t)
	c := f.dial()
	forget := put("9", "m", "a", 1)
	forget.WriteConcern = protocol.LevelFireAndForget
	c.send(&protocol.ClientOpMessage{Op: forget})
	eventually(t, func() bool { return len(f.backend.written()) == 1 }, "applied")
	c.silent()
	require.Equal(t, protocol.LevelFireAndForget, f.backend.written()[0].Level)

	c.send(batch(put("1", "m", "b", 1), forget))
	require.Equal(t, &protocol.OpAck{LastID: "1", AchievedLevel: protocol.LevelPersisted}, expect[*protocol.OpAck](c))

	forget.MapName = "$sys/"
	c.send(batch(forget))
	require.Equal(t, "9", expect[*protocol.OpRejected](c).OpID)
	c.silent()
}

func TestMixedLevelsAreItemisedAndTheWeakestIsAchieved(t *testing.T) {
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.verdict = func(op partitions.Op) partitions.Verdict {
			if op.Level == protocol.LevelMemory {
				return partitions.Verdict{Level: protocol.LevelMemory}
			}
			return partitions.Verdict{Level: protocol.LevelPersisted}
		}
	})
	c := f.dial()
	memory := put("2", "m", "b", 2)
	memory.WriteConcern = protocol.LevelMemory
	m := batch(put("1", "m", "a", 1), memory)
	m.WriteConcern = protocol.LevelPersisted
	c.send(m)
	ack := expect[*protocol.OpAck](c)
	require.Equal(t, protocol.LevelMemory, ack.AchievedLevel)
	require.Equal(t, []string{"1", "2"}, resultIDs(ack))
	require.Equal(t, protocol.LevelPersisted, ack.Results[0].AchievedLevel)
	require.Equal(t, protocol.LevelMemory, ack.Results[1].AchievedLevel)
}

func TestAnIDGetsOneVerdict(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.send(batch(put("1", "m", "a", 1), put("1", "m", "a", 1), put("2", "m", "b", 1)))
	require.Equal(t, &protocol.OpAck{LastID: "2", AchievedLevel: protocol.LevelPersisted}, expect[*protocol.OpAck](c))
	require.Len(t, f.backend.written(), 2, "equal operations count as one")

	c.send(batch(put("7", "m", "a", 1), put("7", "m", "a", 2), put("7", "m", "a", 3), put("8", "m", "c", 1)))
	reject := expect[*protocol.OpRejected](c)
	require.Equal(t, "7", reject.OpID)
	require.Equal(t, protocol.CodeMalformed, reject.Code)
	ack := expect[*protocol.OpAck](c)
	require.Equal(t, []string{"8"}, resultIDs(ack))
	require.Len(t, f.backend.written(), 3)
	c.silent()

	c.send(batch(put("7", "m", "a", 1), put("7", "m", "a", 2), put("7", "m", "a", 2)))
	require.Equal(t, "7", expect[*protocol.OpRejected](c).OpID)
	require.Empty(t, expect[*protocol.OpAck](c).Results)
	require.Len(t, f.backend.written(), 3, "equal ones among others do not stand")
}

func TestUnavailableIsAnErrorAndKeepsTheConnection(t *testing.T) {
	var down sync.Map
	down.Store("m", true)
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onWrite = func(context.Context, []partitions.Op) error {
			if _, yes := down.Load("m"); yes {
				return fmt.Errorf("%w: group 3 at 10.0.0.7 has no leader", partitions.ErrUnavailable)
			}
			return nil
		}
	})
	c := f.dial()
	c.send(batch(put("1", "m", "a", 1), put("2", "", "b", 1)))
	require.Equal(t, "2", expect[*protocol.OpRejected](c).OpID)
	e := expect[*protocol.ErrorMessage](c)
	require.Equal(t, protocol.CodeUnavailable, e.Code)
	require.NotContains(t, e.Message, "10.0.0.7")
	down.Delete("m")
	c.send(batch(put("3", "m", "a", 1)))
	ack := expect[*protocol.OpAck](c)
	require.Equal(t, "3", ack.LastID)
	require.Equal(t, []string{"3"}, resultIDs(ack), "without results it would cover operation 1")
}

func TestUnknownOutcomeClosesBeforeAnyLaterAck(t *testing.T) {
	release := make(chan struct{})
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onWrite = func(_ context.Context, ops []partitions.Op) error {
			if ops[0].Key == "lost" {
				<-release
				return partitions.ErrUnknown
			}
			return nil
		}
	})
	c := f.dial()
	c.send(batch(put("1", "m", "a", 1)))
	c.send(batch(put("2", "m", "lost", 1)))
	c.send(batch(put("3", "m", "c", 1)))
	require.Equal(t, "1", expect[*protocol.OpAck](c).LastID)
	eventually(t, func() bool { return len(f.backend.written()) == 2 }, "the third is applied")
	close(release)
	_, err := c.read(patience)
	require.Equal(t, websocket.StatusCode(protocol.CloseRetry), websocket.CloseStatus(err), "no acknowledgement may cover the lost one")
}

func TestUnknownOutcomeOfFireAndForgetIsNobodysBusiness(t *testing.T) {
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onWrite = func(context.Context, []partitions.Op) error { return partitions.ErrUnknown }
	})
	c := f.dial()
	m := batch(put("1", "m", "a", 1))
	m.WriteConcern = protocol.LevelFireAndForget
	c.send(m)
	c.silent()
}

func TestAcksFollowTheOrderOfTheFramesThoughWritesOverlap(t *testing.T) {
	const frames = 20
	var gates [frames]chan struct{}
	for i := range gates {
		gates[i] = make(chan struct{})
	}
	var begun sync.WaitGroup
	begun.Add(frames)
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onWrite = func(_ context.Context, ops []partitions.Op) error {
			i, _ := strconv.Atoi(ops[0].Key)
			begun.Done()
			<-gates[i]
			return nil
		}
	})
	c := f.dial()
	for i := range frames {
		c.send(batch(put(strconv.Itoa(i), "m", strconv.Itoa(i), 1)))
	}
	begun.Wait() // all of them are under way at once
	for i := frames - 1; i >= 0; i-- {
		close(gates[i])
	}
	for i := range frames {
		require.Equal(t, strconv.Itoa(i), expect[*protocol.OpAck](c).LastID)
	}
}

func TestUnstampedWritesKeepTheirOrderAmongFrames(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, map[string]int{}
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onWrite = func(_ context.Context, ops []partitions.Op) error {
			mu.Lock()
			running++
			most[ops[0].Map] = max(most[ops[0].Map], running)
			mu.Unlock()
			time.Sleep(time.Millisecond) // gives an overlap the chance to happen
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		}
	})
	c := f.dial()
	var want []string
	for i := range 30 {
		op := put(strconv.Itoa(i), "stamped", strconv.Itoa(i), 1)
		if i%2 == 0 {
			op.MapName, op.Record.Timestamp = "unstamped", protocol.Timestamp{}
		}
		want = append(want, op.Key)
		c.send(batch(op))
	}
	for range 30 {
		expect[*protocol.OpAck](c)
	}
	require.Equal(t, 1, most["unstamped"], "an unstamped write is alone")
	var got []string
	for _, op := range f.backend.written() {
		got = append(got, op.Key)
	}
	require.Equal(t, want, got)
}

func TestReadingPausesAtTheBoundOfFramesInFlight(t *testing.T) {
	hold := make(chan struct{})
	f := start(t, func(c *Config, _ *Deps, b *fakeBackend) {
		c.Connection.InFlight = 3
		b.onWrite = func(context.Context, []partitions.Op) error { <-hold; return nil }
	})
	c, busy := f.dial(), f.dial()
	for i := range 10 {
		c.send(batch(put(strconv.Itoa(i), "m", "k"+strconv.Itoa(i), 1)))
	}
	eventually(t, func() bool { return f.InFlight() >= 3 }, "three are under way")
	busy.silent() // others are served meanwhile
	require.Equal(t, 3, f.InFlight())
	close(hold)
	for i := range 10 {
		require.Equal(t, strconv.Itoa(i), expect[*protocol.OpAck](c).LastID)
	}
}

func TestTimeoutOfAWriteIsTheClientsUpToTheServers(t *testing.T) {
	var mu sync.Mutex
	var left []time.Duration
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onWrite = func(ctx context.Context, _ []partitions.Op) error {
			deadline, _ := ctx.Deadline()
			mu.Lock()
			defer mu.Unlock()
			left = append(left, time.Until(deadline))
			return nil
		}
	})
	c := f.dial()
	own := put("1", "m", "a", 1)
	own.TimeoutMillis = 2_000
	endless := put("1", "m", "b", 1)
	endless.TimeoutMillis = protocol.MaxSafeInteger
	of := func(m *protocol.OpBatch, millis int64) *protocol.OpBatch { m.TimeoutMillis = millis; return m }
	cases := []struct {
		m    *protocol.OpBatch
		want time.Duration
	}{
		{batch(put("1", "m", "a", 1)), 30 * time.Second},
		{of(batch(put("1", "m", "a", 2)), 5_000), 5 * time.Second},
		{of(batch(own), 5_000), 2 * time.Second},
		{of(batch(own, put("2", "m", "c", 1)), 5_000), 5 * time.Second},
		{batch(endless), 30 * time.Second},
	}
	for i, tc := range cases {
		c.send(tc.m)
		expect[*protocol.OpAck](c)
		mu.Lock()
		require.InDelta(t, tc.want.Seconds(), left[i].Seconds(), 1, "case %d", i)
		mu.Unlock()
	}
}

func TestBatchBeyondTheBoundIsRefusedAsAWhole(t *testing.T) {
	f := start(t)
	c := f.dial()
	ops := make([]protocol.ClientOp, protocol.MaxBatchItems+1)
	for i := range ops {
		ops[i] = protocol.ClientOp{ID: "1", MapName: "m", Key: "k", Type: protocol.OpRemove}
	}
	c.send(batch(ops...))
	require.Equal(t, protocol.CodeTooLarge, expect[*protocol.ErrorMessage](c).Code)
	require.Empty(t, f.backend.written())
}

func TestDedupKeysIdentifyUnstampedOperationsOnly(t *testing.T) {
	f := start(t, withAuth)
	unstamped := put("5", "m", "k", 1)
	unstamped.Record.Timestamp = protocol.Timestamp{}
	other := unstamped
	other.Record.Value = msgp.AppendInt(nil, 2)
	nameless := unstamped
	nameless.ID = ""

	dedup := func(device string, op protocol.ClientOp) string {
		c := f.dial()
		expect[*protocol.AuthRequired](c)
		c.send(&protocol.Auth{Token: "ann", DeviceToken: device})
		expect[*protocol.AuthAck](c)
		before := len(f.backend.written())
		c.send(batch(op))
		eventually(t, func() bool { return len(f.backend.written()) > before }, "applied")
		return f.backend.written()[before].Dedup
	}
	first := dedup("laptop", unstamped)
	require.NotEmpty(t, first)
	require.Equal(t, first, dedup("laptop", unstamped), "a re-send over a new connection is recognised")
	require.NotEqual(t, first, dedup("phone", unstamped))
	require.NotEqual(t, first, dedup("laptop", other))
	require.NotEqual(t, dedup("", unstamped), dedup("", unstamped), "a device without a token is its connection")
	require.Empty(t, dedup("laptop", nameless))
	require.Empty(t, dedup("laptop", put("5", "m", "k", 1)))
}

func TestTombstonesCarryTheTimestampOfRecordOrOperation(t *testing.T) {
	f := start(t)
	c := f.dial()
	ts := protocol.Timestamp{Millis: testNow, Counter: 3, NodeID: "x"}
	whole := protocol.ClientOp{ID: "1", MapName: "m", Key: "a", Type: protocol.OpRemove, Record: record(1, testNow), RecordPresence: protocol.Present}
	whole.Record.TTLMillis = 5000
	bare := protocol.ClientOp{ID: "2", MapName: "m", Key: "b", Type: protocol.OpRemove, Timestamp: ts}
	inferred := protocol.ClientOp{ID: "3", MapName: "m", Key: "c", RecordPresence: protocol.Nil, Timestamp: ts}
	c.send(batch(whole, bare, inferred))
	expect[*protocol.OpAck](c)
	want := []protocol.Record{{Timestamp: record(1, testNow).Timestamp}, {Timestamp: ts}, {Timestamp: ts}}
	for i, op := range f.backend.written() {
		require.Equal(t, want[i], op.Record, "operation %d", i)
	}
}

func TestOverloadedServerRefusesAfterAWhile(t *testing.T) {
	hold := make(chan struct{})
	f := start(t, func(c *Config, _ *Deps, b *fakeBackend) {
		c.MaxConcurrentOperations, c.OverloadWait = 1, 50*time.Millisecond
		b.onWrite = func(context.Context, []partitions.Op) error { <-hold; return nil }
	})
	busy, refused := f.dial(), f.dial()
	busy.send(batch(put("1", "m", "a", 1)))
	eventually(t, func() bool { return f.InFlight() == 1 }, "one is under way")
	refused.send(batch(put("1", "m", "b", 1)))
	require.Equal(t, protocol.CodeOverloaded, expect[*protocol.ErrorMessage](refused).Code)
	refused.send(querySub("q", "m"))
	require.Equal(t, protocol.CodeOverloaded, expect[*protocol.ErrorMessage](refused).Code)
	close(hold)
	expect[*protocol.OpAck](busy)
	refused.send(batch(put("1", "m", "b", 1)))
	expect[*protocol.OpAck](refused)
}

func TestWritesOfALostConnectionAreSeenThrough(t *testing.T) {
	begun, hold := make(chan struct{}), make(chan struct{})
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onWrite = func(context.Context, []partitions.Op) error { close(begun); <-hold; return nil }
	})
	c := f.dial()
	c.send(batch(put("1", "m", "a", 1)))
	<-begun
	require.NoError(t, c.sock.CloseNow())
	eventually(t, func() bool { return f.Connections() == 0 }, "the connection is gone")
	close(hold)
	eventually(t, func() bool { return len(f.backend.written()) == 1 }, "applied")
}

func resultIDs(ack *protocol.OpAck) []string {
	var ids []string
	for _, r := range ack.Results {
		ids = append(ids, r.OpID)
	}
	return ids
}

func TestAWriteThatWaitsHoldsNothingButItself(t *testing.T) {
	const writes = 24
	hold, waiting := make(chan struct{}), make(chan struct{}, writes)
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onWrite = func(context.Context, []partitions.Op) error {
			waiting <- struct{}{}
			<-hold
			return nil
		}
	})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	c := f.dial()
	before := heapBytes()
	for i := range writes {
		c.sendRaw(padded(t, batch(put(fmt.Sprint(i), "m", fmt.Sprint("k", i), 1))))
	}
	for range writes {
		<-waiting
	}
	require.Less(t, heapBytes()-before, int64(writes/2<<20))
	release()
	for range writes {
		expect[*protocol.OpAck](c)
	}
}
