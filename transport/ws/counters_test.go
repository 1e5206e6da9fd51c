package ws

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/partitions/notice"
	"github.com/quorate/quorate/protocol"
)

func (b *fakeBackend) MergeCounter(_ context.Context, _ *partitions.Session, name string, state protocol.CounterState) (bool, partitions.Verdict, error) {
	m := command.CounterMerge{Name: name}
	for writer, total := range state.Positive { // of one writer, in these tests
		m.Cells = append(m.Cells, command.Cell{Writer: writer, Positive: total, Negative: state.Negative[writer]})
	}
	res, err := b.apply(command.EncodeCounterMerge(m))
	return res.Changed, partitions.Verdict{Code: res.Code, Reason: res.Reason}, err
}

func (b *fakeBackend) AddToCounter(_ context.Context, _ *partitions.Session, name string, delta float64, dedup string) (float64, partitions.Verdict, error) {
	if dedup == "" {
		dedup = fmt.Sprint("addition ", b.additions.Add(1))
	}
	res, err := b.apply(command.EncodeCounterAdd(command.CounterAdd{Name: name, Delta: delta, Dedup: dedup}))
	if err != nil || res.Code != 0 {
		return 0, partitions.Verdict{Code: res.Code, Reason: res.Reason}, err
	}
	total, err := command.DecodeTotal(res.Value)
	return total, partitions.Verdict{}, err
}

func (b *fakeBackend) Counter(ctx context.Context, _ *partitions.Session, name string) (protocol.CounterState, error) {
	state := protocol.CounterState{Positive: map[string]float64{}, Negative: map[string]float64{}}
	if b.onSnapshot != nil {
		if err := b.onSnapshot(ctx); err != nil {
			return state, err
		}
	}
	cells, _, err := b.machine.Counter(name)
	for _, c := range cells {
		state.Positive[c.Writer] = c.Positive
		if c.Negative > 0 {
			state.Negative[c.Writer] = c.Negative
		}
	}
	return state, err
}

func (b *fakeBackend) WatchCounter(name string) *notice.Watcher {
	return b.board.Watch(storage.SectionCounters, name)
}

func counterSync(writer string, total float64) *protocol.CounterSync {
	return &protocol.CounterSync{Name: "likes", State: protocol.CounterState{Positive: map[string]float64{writer: total}, Negative: map[string]float64{}}}
}

func TestCountersReachAllWhoFollowThem(t *testing.T) {
	f := start(t)
	a, b, c := f.dial(), f.dial(), f.dial()
	a.send(&protocol.CounterRequest{Name: "likes"})
	require.Empty(t, expect[*protocol.CounterResponse](a).State.Positive)
	b.send(counterSync("b", 2))
	require.Equal(t, map[string]float64{"b": 2}, expect[*protocol.CounterUpdate](b).State.Positive, "the sender is shown what became of it")
	require.Equal(t, map[string]float64{"b": 2}, expect[*protocol.CounterUpdate](a).State.Positive)
	c.send(counterSync("c", 1))
	require.Equal(t, map[string]float64{"b": 2, "c": 1}, expect[*protocol.CounterUpdate](c).State.Positive)
	for _, follower := range []*client{a, b} {
		require.Len(t, expect[*protocol.CounterUpdate](follower).State.Positive, 2)
	}
	c.send(counterSync("c", 1))
	require.Len(t, expect[*protocol.CounterUpdate](c).State.Positive, 2, "a repeat is answered, too")
	a.silent()
	require.NoError(t, a.sock.CloseNow())
	require.NoError(t, c.sock.CloseNow())
	eventually(t, func() bool { return f.Connections() == 1 }, "two are gone")
	b.send(counterSync("b", 5))
	require.InDelta(t, 5.0, expect[*protocol.CounterUpdate](b).State.Positive["b"], 0)
	require.NoError(t, b.sock.CloseNow())
	eventually(t, func() bool {
		f.counters.mu.Lock()
		defer f.counters.mu.Unlock()
		return len(f.counters.feeds) == 0
	}, "a counter that nobody follows is not read")
}

func TestAdditionsCountOncePerRequest(t *testing.T) {
	f := start(t)
	c := f.dial()
	add := func(id string, delta float64) *protocol.CounterResponse {
		c.send(&protocol.CounterSync{Name: "stock", State: protocol.CounterState{}, Add: &delta, RequestID: id})
		for {
			if m, ok := c.next().(*protocol.CounterResponse); ok {
				return m
			}
		}
	}
	require.InDelta(t, 10.0, *add("1", 10).Value, 0)
	require.InDelta(t, 7.5, *add("2", -2.5).Value, 0)
	again := add("2", -2.5)
	require.Equal(t, "2", again.RequestID)
	require.InDelta(t, 7.5, *again.Value, 0, "a repeat is told what the first was")
	require.InDelta(t, 8.5, *add("", 1).Value, 0)
	require.InDelta(t, 9.5, *add("", 1).Value, 0, "without an id there are no repeats")
	f.backend.onSnapshot = func(context.Context) error { return partitions.ErrUnavailable }
	require.InDelta(t, 12.5, *add("3", 3).Value, 0, "an addition stands when the counter cannot be read afterwards")
}

// TestIdsOfAdditionsAreThoseOfADevice holds that the ids of connections that name no device
// are their own, and that a device does not use one twice.
func TestIdsOfAdditionsAreThoseOfADevice(t *testing.T) {
	f := start(t)
	one, five := 1.0, 5.0
	add := func(c *client, name string, delta *float64) protocol.Message {
		c.send(&protocol.CounterSync{Name: name, Add: delta, RequestID: "r"})
		return c.next()
	}
	a, b := f.dial(), f.dial()
	require.InDelta(t, 1.0, *add(a, "a", &one).(*protocol.CounterResponse).Value, 0)
	refusal := add(a, "b", &five).(*protocol.ErrorMessage)
	require.Equal(t, protocol.CodeStale, refusal.Code)
	require.InDelta(t, 5.0, *add(b, "b", &five).(*protocol.CounterResponse).Value, 0)
}

// TestAnAdditionHasOneVerdict holds that what comes after the answer to an addition is no
// answer to it: neither that the connection follows too many counters, nor that the counter
// cannot be read.
func TestAnAdditionHasOneVerdict(t *testing.T) {
	var fails atomic.Bool
	fails.Store(true)
	var reads atomic.Int64
	f := start(t, func(cfg *Config, _ *Deps, b *fakeBackend) {
		cfg.MaxCounters = 1
		b.onSnapshot = func(context.Context) error {
			if reads.Add(1) > 1 && fails.Load() {
				return partitions.ErrUnavailable
			}
			return nil
		}
	})
	c := f.dial()
	one := 1.0
	add := func(name, id string) {
		c.send(&protocol.CounterSync{Name: name, Add: &one, RequestID: id})
		require.Equal(t, id, expect[*protocol.CounterResponse](c).RequestID)
		c.silent()
	}
	add("a", "1")
	fails.Store(false)
	add("b", "2")
}

// TestWhoFollowsACounterIsShownWhatItMissed holds that a change between the answer and the
// beginning of the feed is shown.
func TestWhoFollowsACounterIsShownWhatItMissed(t *testing.T) {
	f := start(t)
	b := f.dial()
	b.send(counterSync("b", 1))
	expect[*protocol.CounterUpdate](b)
	conn := f.all()[0]
	stale := protocol.CounterState{Positive: map[string]float64{}, Negative: map[string]float64{}}
	require.True(t, f.reserveCounter(conn, "likes"))
	f.follow(conn, "likes", &stale)
	require.InDelta(t, 1.0, expect[*protocol.CounterUpdate](b).State.Positive["b"], 0)
	a := f.dial()
	a.send(&protocol.CounterRequest{Name: "likes"})
	require.InDelta(t, 1.0, expect[*protocol.CounterResponse](a).State.Positive["b"], 0)
	a.silent()
	b.silent()
}

func TestARefusedAdditionIsNamed(t *testing.T) {
	f := start(t)
	c := f.dial()
	huge := math.Inf(1)
	c.send(&protocol.CounterSync{Name: "stock", Add: &huge, RequestID: "add-1"})
	refusal := expect[*protocol.ErrorMessage](c)
	require.Equal(t, protocol.CodeMalformed, refusal.Code)
	named, _, err := msgp.ReadMapStrIntfBytes(refusal.Details, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"type": "COUNTER_SYNC", "name": "stock", "requestId": "add-1"}, named)
}

func TestBadCountersAreRefused(t *testing.T) {
	f := start(t, func(cfg *Config, _ *Deps, _ *fakeBackend) { cfg.MaxCounters = 2 })
	c := f.dial()
	c.send(&protocol.CounterRequest{Name: strings.Repeat("n", 2000)})
	require.Equal(t, protocol.CodeMalformed, expect[*protocol.ErrorMessage](c).Code)
	c.send(counterSync(strings.Repeat("w", 256), 1))
	require.Equal(t, protocol.CodeMalformed, expect[*protocol.ErrorMessage](c).Code)
	many := counterSync("w", 1)
	for i := range 8192 {
		many.State.Positive[fmt.Sprint("w", i)] = 1
	}
	c.send(many)
	require.Equal(t, protocol.CodeTooLarge, expect[*protocol.ErrorMessage](c).Code)
	for _, name := range []string{"a", "b"} {
		c.send(&protocol.CounterRequest{Name: name})
		expect[*protocol.CounterResponse](c)
	}
	c.send(&protocol.CounterRequest{Name: "c"})
	require.Equal(t, protocol.CodeOverloaded, expect[*protocol.ErrorMessage](c).Code, "no more of them are followed")
	c.silent()
	f.backend.onSnapshot = func(context.Context) error { return partitions.ErrUnavailable }
	c.send(&protocol.CounterRequest{Name: "a"})
	require.Equal(t, protocol.CodeUnavailable, expect[*protocol.ErrorMessage](c).Code)
}

func TestACounterIsReadWithoutBeingFollowed(t *testing.T) {
	f := start(t, func(cfg *Config, _ *Deps, _ *fakeBackend) { cfg.MaxCounters = 2 })
	a, b := f.dial(), f.dial()
	for i := range 10 {
		a.send(&protocol.CounterRequest{Name: fmt.Sprint("read ", i), Once: true})
		expect[*protocol.CounterResponse](a)
		a.send(&protocol.CounterSync{Name: fmt.Sprint("raised ", i), Add: new(1.0), RequestID: fmt.Sprint(i), Once: true})
		expect[*protocol.CounterResponse](a)
	}
	a.send(&protocol.CounterRequest{Name: "likes", Once: true})
	expect[*protocol.CounterResponse](a)
	b.send(counterSync("b", 1))
	expect[*protocol.CounterUpdate](b)
	a.silent()

	// What is followed stays so, until the client says that it is enough.
	for i := range 10 {
		a.send(&protocol.CounterRequest{Name: "likes"})
		require.InDelta(t, i+1, expect[*protocol.CounterResponse](a).State.Positive["b"], 0)
		a.send(&protocol.CounterRequest{Name: "likes", Once: true})
		expect[*protocol.CounterResponse](a)
		b.send(counterSync("b", float64(i+2)))
		require.InDelta(t, i+2, expect[*protocol.CounterUpdate](a).State.Positive["b"], 0)
		expect[*protocol.CounterUpdate](b)
		a.send(&protocol.CounterRequest{Name: "likes", Unfollow: true})
		a.send(&protocol.CounterRequest{Name: fmt.Sprint("other ", i)})
		expect[*protocol.CounterResponse](a)
		a.send(&protocol.CounterRequest{Name: fmt.Sprint("other ", i), Unfollow: true})
		a.silent()
	}
	b.send(counterSync("b", 100))
	expect[*protocol.CounterUpdate](b)
	a.silent()
	eventually(t, func() bool {
		f.counters.mu.Lock()
		defer f.counters.mu.Unlock()
		return len(f.counters.feeds) == 1
	}, "only b follows")
}
