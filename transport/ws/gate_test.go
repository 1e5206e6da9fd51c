package ws

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

func TestPlacesCanBeChangedWhileTheyAreInUse(t *testing.T) {
	s := &slots{limit: 2}
	require.True(t, s.try())
	require.True(t, s.try())
	require.False(t, s.try())
	got := make(chan bool)
	go func() { got <- s.enter(context.Background()) }()
	eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.waiting) == 1
	}, "it waits")
	s.resize(3)
	require.True(t, <-got)
	s.resize(1)
	s.leave()
	s.leave()
	require.False(t, s.try(), "one place is left, and it is in use")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	require.False(t, s.enter(ended))
	s.leave()
	require.True(t, s.enter(ended))
	require.Equal(t, 1, s.inUse())
}

func TestNeverMorePlacesAreTakenThanThereAre(t *testing.T) {
	s := &slots{limit: 3}
	var inside, most atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 200 {
				ctx, cancel := context.WithCancel(context.Background())
				if inside.Load()%2 == 0 {
					cancel() // gives up while it may just get a place
				}
				if s.enter(ctx) {
					n := inside.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					inside.Add(-1)
					s.leave()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(3))
	require.Zero(t, s.inUse())
	require.Empty(t, s.waiting)
}

func TestLimitsChangeAtOnce(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) { c.RatePerSecond, c.RateBurst = 1, 2 })
	c := f.dial()
	ask := func() protocol.Message {
		c.send(&protocol.Ping{Timestamp: msgp.AppendInt64(nil, 1)})
		return c.next()
	}
	for refused := false; !refused; { // the loop is faster than one a second
		_, refused = ask().(*protocol.ErrorMessage)
	}
	f.SetLimits(Limits{ConcurrentOperations: 7, Connections: 1, OperationsPerSecond: 1_000_000})
	require.Equal(t, 7, f.gate.ops.limit)
	ask() // its bucket is as empty as before
	for range 20 {
		require.IsType(t, &protocol.Pong{}, ask())
	}
	_, resp, err := websocket.Dial(t.Context(), f.url, nil)
	require.Error(t, err)
	require.Equal(t, 503, resp.StatusCode, "one connection is open")
	require.Equal(t, Limits{ConcurrentOperations: 7, Connections: 1, OperationsPerSecond: 1_000_000}, f.Limits())
}
