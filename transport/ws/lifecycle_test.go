package ws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

func TestConsumerThatStopsReadingIsClosedAndOthersAreServed(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) {
		c.Connection.SendTimeout = 300 * time.Millisecond
		c.CloseTimeout = 200 * time.Millisecond
	})
	stuck, fine := f.dial(), f.dial()
	for _, c := range []*client{stuck, fine} {
		c.send(querySub("q", "m"))
		expect[*protocol.QueryResp](c)
	}
	value := record(0, testNow)
	value.Value = append([]byte{0xc5, 0xff, 0xff}, make([]byte, 0xffff)...)
	for i := 0; f.Connections() == 2; i++ { // until the socket buffers are full
		rec := value
		rec.Timestamp.Millis += int64(i)
		f.backend.put("m", "k", rec)
		require.Equal(t, "k", expect[*protocol.ServerEvent](fine).Key)
		expect[*protocol.QueryUpdate](fine)
		require.Less(t, i, 10_000)
	}
	fine.silent()
	require.Equal(t, 1.0, testutil.ToFloat64(f.Server.metrics.slowConsumers))
}

func TestAnswersToAClientThatStopsReadingEndInAClose(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) {
		c.Connection.SendTimeout = 200 * time.Millisecond
		c.CloseTimeout = 100 * time.Millisecond
		c.RatePerSecond = 0
	})
	big := record(0, testNow)
	big.Value = append([]byte{0xc6, 0, 0x0f, 0xff, 0xff}, make([]byte, 0xfffff)...)
	f.backend.put("m", "k", big)
	c := f.dial()
	frame := encode(t, querySub("q", "m"))
	for f.Connections() > 0 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_ = c.sock.Write(ctx, websocket.MessageBinary, frame) // fails once the server is gone
		cancel()
	}
}

func TestDrainFinishesWhatWasBegunAndSaysGoodbye(t *testing.T) {
	hold, begun := make(chan struct{}), make(chan struct{}, 8)
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onWrite = func(context.Context, []partitions.Op) error {
			begun <- struct{}{}
			<-hold
			return nil
		}
	})
	writer, idle := f.dial(), f.dial()
	idle.silent()
	writer.send(batch(put("1", "m", "a", 1)))
	writer.send(batch(put("2", "m", "b", 1)))
	<-begun
	<-begun
	drained := make(chan error)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		drained <- f.Drain(ctx)
	}()
	require.Equal(t, protocol.CloseShutdown, idle.expectClose())
	_, resp, err := websocket.Dial(t.Context(), f.url, nil)
	require.Error(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	select {
	case err := <-drained:
		t.Fatalf("drained with writes under way: %v", err)
	default:
	}
	close(hold)
	require.Equal(t, "1", expect[*protocol.OpAck](writer).LastID)
	require.Equal(t, "2", expect[*protocol.OpAck](writer).LastID)
	require.Equal(t, protocol.CloseShutdown, writer.expectClose())
	require.NoError(t, <-drained)
	require.Zero(t, f.Connections())
}

func TestDrainIsBoundedByItsContext(t *testing.T) {
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.onWrite = func(ctx context.Context, _ []partitions.Op) error {
			<-ctx.Done()
			return partitions.ErrUnknown
		}
	})
	c := f.dial()
	c.send(batch(put("1", "m", "a", 1)))
	eventually(t, func() bool { return f.InFlight() == 1 }, "under way")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, f.Drain(ctx), ErrDrainTimeout)
	require.Zero(t, f.Connections())
}

func TestDrainDoesNotWaitLongForClientsThatDoNotAnswer(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) { c.CloseTimeout = 100 * time.Millisecond })
	f.dial() // never reads, so never answers the Close
	eventually(t, func() bool { return f.Connections() == 1 }, "connected")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, f.Drain(ctx))
}

func TestDrainUnderLoadLosesNoAcknowledgedWrite(t *testing.T) {
	const clients = 20
	f := start(t)
	acked := make([][]string, clients)
	var wg sync.WaitGroup
	var warm sync.WaitGroup
	warm.Add(clients)
	for i := range clients {
		c := f.dial()
		wg.Go(func() {
			sent, ready := 0, false
			for {
				op := put(strconv.Itoa(sent), "m", fmt.Sprintf("%d/%d", i, sent), 1)
				frame, _ := protocol.Append(nil, batch(op))
				sent++
				if c.sock.Write(t.Context(), websocket.MessageBinary, frame) != nil {
					return
				}
				m, err := c.read(patience)
				if err != nil {
					if websocket.CloseStatus(err) != websocket.StatusGoingAway {
						t.Errorf("client %d ended with %v", i, err)
					}
					return
				}
				acked[i] = append(acked[i], fmt.Sprintf("%d/%s", i, m.(*protocol.OpAck).LastID))
				if !ready && sent == 10 {
					ready = true
					warm.Done()
				}
			}
		})
	}
	warm.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, f.Drain(ctx))
	wg.Wait()
	stored := map[string]bool{}
	for _, op := range f.backend.written() {
		stored[op.Key] = true
	}
	for i := range acked {
		require.NotEmpty(t, acked[i])
		for _, key := range acked[i] {
			require.True(t, stored[key], "%s was acknowledged", key)
		}
	}
}

func TestCloseBeforeOpenAndTwice(t *testing.T) {
	f := start(t)
	s, err := New(f.Server.cfg, Deps{Logger: f.deps.Logger, Now: f.deps.Now})
	require.NoError(t, err)
	s.Close()
	s.Close()
}

func TestStormOfConnects(t *testing.T) {
	const n = 500
	f := start(t, withAuth)
	var wg sync.WaitGroup
	errs := make(chan error, n)
	socks := make(chan *websocket.Conn, n)
	for range n {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			sock, _, err := websocket.Dial(ctx, f.url, nil)
			if err != nil {
				errs <- err
				return
			}
			socks <- sock
			errs <- handshake(ctx, sock)
		})
	}
	wg.Wait()
	for range n {
		require.NoError(t, <-errs)
	}
	require.Equal(t, n, f.Connections())
	close(socks)
	for sock := range socks {
		_ = sock.CloseNow()
	}
	eventually(t, func() bool { return f.Connections() == 0 }, "all are gone")
	require.Empty(t, f.perAddr)
}

// handshake authenticates and pings.
func handshake(ctx context.Context, sock *websocket.Conn) error {
	for _, m := range []protocol.Message{&protocol.Auth{Token: "ann"}, &protocol.Ping{}} {
		frame, err := protocol.Append(nil, m)
		if err != nil {
			return err
		}
		if err := sock.Write(ctx, websocket.MessageBinary, frame); err != nil {
			return err
		}
	}
	for _, want := range []protocol.Kind{protocol.KindAuthRequired, protocol.KindAuthAck, protocol.KindPong} {
		_, frame, err := sock.Read(ctx)
		if err != nil {
			return err
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			return err
		}
		if m.Kind() != want {
			return errors.New("got " + m.Kind().String())
		}
	}
	return nil
}

func TestMemoryOfAnIdleConnection(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector changes sizes")
	}
	const n = 400
	f := start(t)
	resident := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		debug.FreeOSMemory()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	clients := make([]*rawClient, n)
	for i := range clients {
		clients[i] = dialRaw(t, f.url)
	}
	for _, c := range clients {
		c.ping(t)
	}
	eventually(t, func() bool { return f.Connections() == n }, "connected")
	with := resident()
	for _, c := range clients {
		require.NoError(t, c.Close())
	}
	eventually(t, func() bool { return f.Connections() == 0 }, "closed")
	clear(clients)
	perConnection := (int64(with) - int64(resident())) / n
	t.Logf("%d bytes per idle connection, the client's end included", perConnection)
	require.Less(t, perConnection, int64(30<<10))
}

func TestPartitionMapIsAnsweredWhenNewerAndPushedAtChanges(t *testing.T) {
	f := start(t, withAuth)
	c, waiting := f.login("ann"), f.dial()
	expect[*protocol.AuthRequired](waiting)
	c.send(&protocol.PartitionMapRequest{})
	m := expect[*protocol.PartitionMap](c)
	require.EqualValues(t, 1, m.Version)
	require.EqualValues(t, 271, m.PartitionCount)
	require.Len(t, m.Partitions, 271)
	require.Equal(t, protocol.PartitionOwner{PartitionID: 270, OwnerNodeID: "n1"}, withoutBackups(m.Partitions[270]))
	require.Equal(t, "ws://127.0.0.1:1/ws", m.Nodes[0].Endpoints.WebSocket)
	require.Equal(t, testNow, m.GeneratedAt)
	c.send(&protocol.PartitionMapRequest{CurrentVersion: 1})
	c.silent()

	next := *f.backend.PartitionMap()
	next.Version = 5
	f.backend.setMap(&next)
	require.EqualValues(t, 5, expect[*protocol.PartitionMap](c).Version)
	f.backend.setMap(&next)
	c.silent()
	waiting.send(&protocol.Auth{Token: "bob"})
	expect[*protocol.AuthAck](waiting)
	waiting.silent()
}

func withoutBackups(o protocol.PartitionOwner) protocol.PartitionOwner {
	o.BackupNodeIDs = nil
	return o
}

func TestPartitionMapRequestWithoutPayloadAndWithoutMap(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.sendRaw([]byte("\x81\xa4type\xb5PARTITION_MAP_REQUEST"))
	expect[*protocol.PartitionMap](c)
	f.backend.setMap(nil)
	c.send(&protocol.PartitionMapRequest{})
	c.silent()
}

func TestMetricsAreCompleteFromTheStart(t *testing.T) {
	f := start(t)
	families, err := f.metrics.Gather()
	require.NoError(t, err)
	names := map[string]int{}
	for _, fam := range families {
		names[fam.GetName()] = len(fam.GetMetric())
	}
	for _, name := range []string{
		"service_active_connections", "service_operations_in_flight", "service_ws_messages_total", "service_ws_bytes_total",
		"service_ws_closes_total", "service_slow_consumers_total", "service_auth_total", "service_ws_limits_total",
		"service_operations_total", "service_operation_duration_seconds",
	} {
		require.Positive(t, names[name], name)
	}
	before := testutil.CollectAndCount(f.Server.metrics.limits)
	for _, limit := range countedLimits(t) {
		f.Server.metrics.limits.WithLabelValues(limit)
		require.Equal(t, before, testutil.CollectAndCount(f.Server.metrics.limits), "limit %s is not shown from the start", limit)
	}
	c := f.dial()
	c.send(batch(put("1", "m", "a", 1), put("2", "", "b", 1)))
	expect[*protocol.OpRejected](c)
	expect[*protocol.OpAck](c)
	eventually(t, func() bool {
		return testutil.ToFloat64(f.Server.metrics.operationsTotal.WithLabelValues(serviceWrite, "ok")) == 1
	}, "accepted")
	require.Equal(t, 1.0, testutil.ToFloat64(f.Server.metrics.operationsTotal.WithLabelValues(serviceWrite, "refused")))
	require.Equal(t, 1.0, testutil.ToFloat64(f.Server.metrics.in[protocol.KindOpBatch]))
	require.Equal(t, 1.0, testutil.ToFloat64(f.Server.metrics.out[protocol.KindOpAck]))
}

// countedLimits are the labels with which the package counts refusals.
func countedLimits(t *testing.T) (list []string) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`metrics\.limit\("(\w+)"\)`).FindAllSubmatch(source, -1) {
			list = append(list, string(found[1]))
		}
	}
	require.Greater(t, len(list), 15)
	return list
}
