package mux_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/raftnode/mux"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

func TestCallReachesTheHandlerAndReturnsItsReply(t *testing.T) {
	for _, secret := range []string{"", "the secret"} {
		t.Run("secret "+secret, func(t *testing.T) {
			cfg := testConfig("a", "127.0.0.1")
			cfg.Secret = []byte(secret)
			a := open(t, cfg, mux.Deps{})
			cfg.NodeID = "b"
			b := open(t, cfg, mux.Deps{})
			var from atomic.Value
			b.Handle(methodEcho, func(_ context.Context, p mux.Peer, body []byte) ([]byte, error) {
				from.Store(p)
				return body, nil
			})
			a.SetClusterID("cluster")
			a.SetPeerAddr("b#1", b.Addr())
			b.Start()

			for _, body := range []string{"", "hello", strings.Repeat("x", 1<<20)} {
				reply, err := a.Call(t.Context(), "b#1", methodEcho, []byte(body))
				require.NoError(t, err)
				require.Equal(t, body, string(reply))
			}
			require.Equal(t, mux.Peer{ID: "a#1", NodeID: "a", ClusterID: "cluster", Addr: a.Addr()}, from.Load())
			addr, ok := b.PeerAddr("a#1")
			require.True(t, ok, "the address is learnt from the handshake")
			require.Equal(t, a.Addr(), addr)
		})
	}
}

func TestConcurrentCallsGetTheirOwnReplies(t *testing.T) {
	_, a, b := pair(t)
	var calling sync.WaitGroup
	for caller := range 50 {
		calling.Go(func() {
			for i := range 50 {
				body := fmt.Sprintf("%d/%d", caller, i)
				reply, err := a.Call(context.Background(), b.ID(), methodEcho, []byte(body))
				if err != nil || string(reply) != body {
					t.Errorf("%s: %q, %v", body, reply, err)
				}
			}
		})
	}
	calling.Wait()
}

func TestSlowHandlerDoesNotHoldUpOthers(t *testing.T) {
	network := memnet.New(1)
	cfg := testConfig("b", "b")
	b := open(t, cfg, mux.Deps{Network: network.Host("b")})
	release := make(chan struct{})
	b.Handle(methodBlock, func(context.Context, mux.Peer, []byte) ([]byte, error) {
		<-release
		return []byte("late"), nil
	})
	b.Handle(methodEcho, echo)
	b.Start()
	a := startNode(t, network, "a")
	a.SetPeerAddr(b.ID(), b.Addr())
	slow := make(chan string)
	go func() {
		reply, _ := a.Call(context.Background(), b.ID(), methodBlock, nil)
		slow <- string(reply)
	}()
	for range 10 {
		_, err := a.Call(t.Context(), b.ID(), methodEcho, nil)
		require.NoError(t, err)
	}
	close(release)
	require.Equal(t, "late", <-slow)
}

func TestErrorsOfHandlersReachTheCaller(t *testing.T) {
	network := memnet.New(1)
	cfg := testConfig("b", "b")
	cfg.MaxMessage = 1000
	b := open(t, cfg, mux.Deps{Network: network.Host("b")})
	b.Handle(methodFail, func(_ context.Context, _ mux.Peer, body []byte) ([]byte, error) {
		switch string(body) {
		case "plain":
			return nil, errors.New("something broke")
		case "coded":
			return nil, fmt.Errorf("wrapped: %w", &mux.RemoteError{Code: 99, Text: "not the leader"})
		case "long":
			return nil, errors.New(strings.Repeat("x", 1<<20))
		}
		return make([]byte, 1001), nil
	})
	b.Start()
	a := startNode(t, network, "a", func(c *mux.Config) { c.MaxMessage = 1000 })
	a.SetPeerAddr(b.ID(), b.Addr())
	for _, test := range []struct {
		method mux.Method
		body   string
		code   uint16
		text   string
	}{
		{methodFail, "plain", mux.CodeInternal, "something broke"},
		{methodFail, "coded", 99, "not the leader"},
		{methodFail, "huge reply", mux.CodeReplyTooLarge, "reply of 1001 bytes"},
		{methodFail, "long", mux.CodeInternal, strings.Repeat("x", 1000)},
		{12345, "", mux.CodeNoMethod, "no method 12345"},
	} {
		_, err := a.Call(t.Context(), b.ID(), test.method, []byte(test.body))
		var remote *mux.RemoteError
		require.ErrorAs(t, err, &remote, test.body)
		require.Equal(t, mux.RemoteError{Code: test.code, Text: test.text}, *remote)
		require.NotErrorIs(t, err, mux.ErrNoReply)
		require.NotErrorIs(t, err, mux.ErrUnreachable)
	}
}

func TestCallsThatCannotBeSentSaySo(t *testing.T) {
	network, a, b := pair(t)
	tests := map[string]struct {
		call func(ctx context.Context) error
		also error
	}{
		"unknown id": {func(ctx context.Context) error {
			_, err := a.Call(ctx, "nobody#1", methodEcho, nil)
			return err
		}, nil},
		"nobody listens": {func(ctx context.Context) error {
			a.SetPeerAddr("gone#1", "b:1")
			_, err := a.Call(ctx, "gone#1", methodEcho, nil)
			return err
		}, nil},
		"no such host": {func(ctx context.Context) error {
			_, _, err := a.CallAddr(ctx, "nowhere:1", methodEcho, nil)
			return err
		}, nil},
		"blackhole": {func(ctx context.Context) error {
			network.Cut(memnet.Blackhole, "b", "a")
			defer network.Heal()
			_, _, err := a.CallAddr(ctx, b.Addr(), methodEcho, nil)
			return err
		}, context.DeadlineExceeded},
		"ended context": {func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := a.Call(ctx, b.ID(), methodEcho, nil)
			return err
		}, context.Canceled},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.call(within(t, 50*time.Millisecond))
			require.ErrorIs(t, err, mux.ErrUnreachable)
			require.NotErrorIs(t, err, mux.ErrNoReply)
			if test.also != nil {
				require.ErrorIs(t, err, test.also)
			}
		})
	}
	_, err := a.Call(t.Context(), b.ID(), methodEcho, make([]byte, 8<<20+1))
	require.ErrorIs(t, err, mux.ErrTooLarge)
}

// blockingNode answers methodBlock only when its context ends, and tells of both.
func blockingNode(t *testing.T, network *memnet.Network, nodeID string, change ...func(*mux.Config)) (m *mux.Mux, began, ended chan struct{}) {
	t.Helper()
	cfg := testConfig(nodeID, nodeID)
	for _, c := range change {
		c(&cfg)
	}
	began, ended = make(chan struct{}, 10000), make(chan struct{}, 10000)
	m = open(t, cfg, mux.Deps{Network: network.Host(nodeID)})
	m.Handle(methodEcho, echo)
	m.Handle(methodBlock, func(ctx context.Context, _ mux.Peer, _ []byte) ([]byte, error) {
		began <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	})
	m.Start()
	return m, began, ended
}

func TestGivingUpIsUnknownAndReachesTheHandler(t *testing.T) {
	network := memnet.New(1)
	b, began, ended := blockingNode(t, network, "b")
	a := startNode(t, network, "a")
	a.SetPeerAddr(b.ID(), b.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	_, err := a.Call(ctx, b.ID(), methodBlock, nil)
	require.ErrorIs(t, err, mux.ErrNoReply)
	require.ErrorIs(t, err, context.Canceled)
	<-ended
	_, err = a.Call(t.Context(), b.ID(), methodEcho, nil)
	require.NoError(t, err, "the connection goes on")
}

func TestDeadlinesOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(1)
		cfg := testConfig("b", "b")
		b, err := mux.Open(cfg, mux.Deps{Network: network.Host("b")})
		require.NoError(t, err)
		defer b.Close()
		deadlines := make(chan time.Duration, 1)
		b.Handle(methodBlock, func(ctx context.Context, _ mux.Peer, _ []byte) ([]byte, error) {
			deadline, _ := ctx.Deadline()
			deadlines <- time.Until(deadline)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		b.Start()
		a, err := mux.Open(testConfig("a", "a"), mux.Deps{Network: network.Host("a")})
		require.NoError(t, err)
		defer a.Close()
		a.SetPeerAddr(b.ID(), b.Addr())
		for _, limit := range []time.Duration{0, 50 * time.Millisecond, time.Minute} {
			ctx, want := t.Context(), 3*time.Second // CallTimeout
			if limit > 0 {
				limited, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				ctx, want = limited, limit
			}
			start := time.Now()
			_, err := a.Call(ctx, b.ID(), methodBlock, nil)
			require.ErrorIs(t, err, mux.ErrNoReply)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, want, time.Since(start))
			require.InDelta(t, want, <-deadlines, float64(2*time.Millisecond))
		}
	})
}

func TestLostConnectionIsUnknown(t *testing.T) {
	for name, lose := range map[string]func(n *memnet.Network, a, b *mux.Mux){
		"reset":   func(n *memnet.Network, _, _ *mux.Mux) { n.ResetConns(1) },
		"crash":   func(n *memnet.Network, _, _ *mux.Mux) { n.CrashHost("b") },
		"dropped": func(_ *memnet.Network, a, b *mux.Mux) { a.DropPeer(b.ID()) },
		"refused": func(_ *memnet.Network, a, b *mux.Mux) { b.Refuse(a.ID()) },
	} {
		t.Run(name, func(t *testing.T) {
			network := memnet.New(1)
			b, began, ended := blockingNode(t, network, "b")
			a := startNode(t, network, "a")
			a.SetPeerAddr(b.ID(), b.Addr())
			go func() {
				<-began
				lose(network, a, b)
			}()
			_, err := a.Call(t.Context(), b.ID(), methodBlock, nil)
			require.ErrorIs(t, err, mux.ErrNoReply)
			<-ended
		})
	}
}

func TestSilentPeerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, a, b := pair(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := a.Call(ctx, b.ID(), methodEcho, nil)
		require.NoError(t, err)
		network.CutBoth(memnet.Blackhole, "a", "b")
		start := time.Now()
		_, err = a.Call(ctx, b.ID(), methodEcho, nil)
		require.ErrorIs(t, err, mux.ErrNoReply)
		require.InDelta(t, 5*time.Second, time.Since(start), float64(2*time.Second))
		// Now that the silence is known, the next call is not sent at all.
		_, err = a.Call(ctx, b.ID(), methodEcho, nil)
		require.ErrorIs(t, err, mux.ErrUnreachable)
		network.Heal()
		time.Sleep(time.Second)
		_, err = a.Call(ctx, b.ID(), methodEcho, nil)
		require.NoError(t, err)
		require.NoError(t, errors.Join(a.Close(), b.Close()))
	})
}

func TestIdleConnectionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		network := memnet.New(1)
		b := startNode(t, network, "b")
		a, err := mux.Open(testConfig("a", "a"), mux.Deps{Network: network.Host("a"), Registerer: registry})
		require.NoError(t, err)
		a.SetPeerAddr(b.ID(), b.Addr())
		for range 3 {
			_, err := a.Call(t.Context(), b.ID(), methodEcho, nil)
			require.NoError(t, err)
			time.Sleep(time.Hour)
		}
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP quorate_peer_handshakes_total Handshakes with other nodes.
# TYPE quorate_peer_handshakes_total counter
quorate_peer_handshakes_total{direction="out",result="ok"} 1
# HELP quorate_peer_calls_total Calls made to other nodes.
# TYPE quorate_peer_calls_total counter
quorate_peer_calls_total{result="ok"} 3
# HELP quorate_peer_connections Open connections between this node and others.
# TYPE quorate_peer_connections gauge
quorate_peer_connections{carries="calls",direction="out"} 1
`), "quorate_peer_handshakes_total", "quorate_peer_calls_total", "quorate_peer_connections"))
		require.NoError(t, errors.Join(a.Close(), b.Close()))
		families, err := registry.Gather()
		require.NoError(t, err)
		require.Empty(t, families, "Close takes the metrics away")
	})
}

func TestCallsBeyondTheWindowWaitUnsent(t *testing.T) {
	network := memnet.New(1)
	b, began, _ := blockingNode(t, network, "b", func(c *mux.Config) { c.MaxCalls = 2 })
	a := startNode(t, network, "a")
	a.SetPeerAddr(b.ID(), b.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	for range 2 {
		calling.Go(func() { _, _ = a.Call(ctx, b.ID(), methodBlock, nil) })
	}
	<-began
	<-began
	_, err := a.Call(within(t, 20*time.Millisecond), b.ID(), methodEcho, nil)
	require.ErrorIs(t, err, mux.ErrUnreachable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	cancel()
	calling.Wait()
	_, err = a.Call(t.Context(), b.ID(), methodEcho, nil)
	require.NoError(t, err)
}

func TestAbandonedHandlersMakeTheNodeBusy(t *testing.T) {
	network := memnet.New(1)
	b := open(t, func() mux.Config {
		cfg := testConfig("b", "b")
		cfg.MaxCalls = 2
		return cfg
	}(), mux.Deps{Network: network.Host("b")})
	began, release := make(chan struct{}, 10), make(chan struct{})
	b.Handle(methodBlock, func(context.Context, mux.Peer, []byte) ([]byte, error) {
		began <- struct{}{}
		<-release // ignores its context
		return nil, nil
	})
	b.Start()
	a := startNode(t, network, "a")
	a.SetPeerAddr(b.ID(), b.Addr())
	for range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-began
			cancel()
		}()
		_, err := a.Call(ctx, b.ID(), methodBlock, nil)
		require.ErrorIs(t, err, mux.ErrNoReply)
	}
	_, err := a.Call(t.Context(), b.ID(), methodBlock, nil)
	var remote *mux.RemoteError
	require.ErrorAs(t, err, &remote)
	require.Equal(t, mux.CodeBusy, remote.Code)
	close(release)
	eventually(t, "the handlers end", func() bool {
		_, err := a.Call(t.Context(), b.ID(), methodBlock, nil)
		return err == nil
	})
}

func TestCallAddrSaysWhoAnswered(t *testing.T) {
	network := memnet.New(1)
	b := startNode(t, network, "b")
	b.SetClusterID("cluster")
	cfg := mux.DefaultConfig()
	tool := open(t, cfg, mux.Deps{Network: network.Host("tool")})
	require.Empty(t, tool.Addr())
	require.Empty(t, tool.ID())
	reply, peer, err := tool.CallAddr(t.Context(), b.Addr(), methodEcho, []byte("who"))
	require.NoError(t, err)
	require.Equal(t, "who", string(reply))
	require.Equal(t, mux.Peer{ID: "b#1", NodeID: "b", ClusterID: "cluster", Addr: b.Addr()}, peer)
	_, peer, err = tool.CallAddr(t.Context(), b.Addr(), 999, nil)
	require.Error(t, err)
	require.Equal(t, "b", peer.NodeID)
}

func TestCallToOneself(t *testing.T) {
	network := memnet.New(1)
	a := startNode(t, network, "a")
	reply, peer, err := a.CallAddr(t.Context(), a.Addr(), methodEcho, []byte("me"))
	require.NoError(t, err)
	require.Equal(t, "me", string(reply))
	require.Equal(t, a.ID(), peer.ID)
}

func TestLargeMessagesShareTheConnection(t *testing.T) {
	network, a, b := pair(t)
	network.SetLinks(memnet.Link{Latency: time.Millisecond})
	var calling sync.WaitGroup
	for i := range 8 {
		calling.Go(func() {
			body := bytes.Repeat([]byte{byte(i)}, 3<<20)
			reply, err := a.Call(within(t, 20*time.Second), b.ID(), methodEcho, body)
			if err != nil || !bytes.Equal(reply, body) {
				t.Errorf("%d: %d bytes, %v", i, len(reply), err)
			}
		})
	}
	calling.Wait()
}
