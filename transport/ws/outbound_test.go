package ws

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

// valve is a socket that writes only while it is open.
type valve struct {
	mu   sync.Mutex
	open *sync.Cond
	on   bool
	sent []item
	err  error
}

func newValve() *valve {
	v := &valve{}
	v.open = sync.NewCond(&v.mu)
	return v
}

func (v *valve) send(chunk []item) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for !v.on && v.err == nil {
		v.open.Wait()
	}
	v.sent = append(v.sent, chunk...)
	return v.err
}

func (v *valve) set(on bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.on, v.err = on, err
	v.open.Broadcast()
}

func (v *valve) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.sent)
}

func smallQueue() ConnectionConfig {
	cfg := DefaultConnectionConfig()
	cfg.OutboundCapacity, cfg.OutboundBytes, cfg.EventCapacity, cfg.SendTimeout = 4, 100, 6, 50*time.Millisecond
	return cfg
}

func TestQueueBoundsFramesBytesAndEvents(t *testing.T) {
	v := newValve()
	o := newOutbound(smallQueue(), v.send)
	for range 4 {
		require.NoError(t, o.push(protocol.KindPong, []byte("x")))
	}
	require.ErrorIs(t, o.push(protocol.KindPong, []byte("x")), errSlow)
	require.ErrorIs(t, o.put(protocol.KindPong, []byte("x")), errSlow, "after the send timeout")
	for range 6 {
		require.NoError(t, o.event(item{event: &partitions.Event{}}), "events have their own bound")
	}
	require.ErrorIs(t, o.event(item{event: &partitions.Event{}}), errSlow)
	for range 6 {
		require.NoError(t, o.message([]byte("x")), "so have messages of topics")
	}
	require.ErrorIs(t, o.message([]byte("x")), errSlow)

	bytes := newOutbound(smallQueue(), v.send)
	require.NoError(t, bytes.push(protocol.KindPong, make([]byte, 500)), "one frame always fits")
	require.ErrorIs(t, bytes.push(protocol.KindPong, make([]byte, 1)), errSlow)
	require.NoError(t, bytes.message(make([]byte, 500)), "one message always fits")
	require.ErrorIs(t, bytes.message(make([]byte, 1)), errSlow)
	v.set(true, nil)
	o.finish()
	bytes.finish()
	require.Zero(t, o.messages+o.messageBytes, "nothing is counted that is not there")
}

func TestPutWaitsForRoom(t *testing.T) {
	v := newValve()
	cfg := smallQueue()
	cfg.SendTimeout = patience
	o := newOutbound(cfg, v.send)
	const n = 50
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range n {
			if o.put(protocol.KindPong, []byte{byte(i)}) != nil {
				return
			}
		}
	}()
	eventually(t, func() bool { o.mu.Lock(); defer o.mu.Unlock(); return o.space != nil }, "the queue is full")
	v.set(true, nil)
	<-done
	o.finish()
	require.Equal(t, n, v.count())
	for i, it := range v.sent {
		require.Equal(t, byte(i), it.frame[0], "order is kept")
	}
	require.Zero(t, o.frames+o.bytes+o.events, "nothing is counted that is not there")
}

func TestRefuseSendsWhatIsQueuedAbortDropsIt(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(*outbound)
		sent int
	}{
		"refuse": {(*outbound).refuse, 3},
		"abort":  {(*outbound).abort, 1}, // the first is with the writer already
	} {
		v := newValve()
		o := newOutbound(smallQueue(), v.send)
		require.NoError(t, o.push(protocol.KindPong, nil))
		eventually(t, func() bool { o.mu.Lock(); defer o.mu.Unlock(); return len(o.queue) == 0 }, "taken")
		require.NoError(t, o.push(protocol.KindPong, nil))
		require.NoError(t, o.push(protocol.KindPong, nil))
		tc.end(o)
		require.ErrorIs(t, o.push(protocol.KindPong, nil), errClosed, name)
		require.ErrorIs(t, o.put(protocol.KindPong, nil), errClosed, name)
		require.ErrorIs(t, o.event(item{event: &partitions.Event{}}), errClosed, name)
		v.set(true, nil)
		o.finish()
		require.Equal(t, tc.sent, v.count(), name)
	}
}

func TestAbortWakesThoseWhoWaitForRoom(t *testing.T) {
	v := newValve()
	cfg := smallQueue()
	cfg.SendTimeout = time.Hour
	o := newOutbound(cfg, v.send)
	for range cfg.OutboundCapacity {
		require.NoError(t, o.push(protocol.KindPong, nil))
	}
	result := make(chan error)
	go func() { result <- o.put(protocol.KindPong, nil) }()
	eventually(t, func() bool { o.mu.Lock(); defer o.mu.Unlock(); return o.space != nil }, "waiting")
	o.abort()
	require.ErrorIs(t, <-result, errClosed)
	v.set(true, nil)
	o.finish()
}

func TestFailedWriteEndsTheQueue(t *testing.T) {
	v := newValve()
	v.set(true, errSlow)
	o := newOutbound(smallQueue(), v.send)
	require.NoError(t, o.push(protocol.KindPong, nil))
	o.finish()
	require.ErrorIs(t, o.put(protocol.KindPong, nil), errClosed)
}
