package mux_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/raftnode/mux"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// requireRefused checks that err is a refusal of which nothing was sent.
func requireRefused(t *testing.T, err error, code mux.RefusalCode, by raft.ServerID) {
	t.Helper()
	var refused *mux.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, code, refused.Code, refused.Error())
	require.Equal(t, by, refused.By.ID)
	require.NotEmpty(t, refused.Text)
	require.ErrorIs(t, err, mux.ErrUnreachable)
}

func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		arrange func(a, b *mux.Mux)
		stream  bool
		code    mux.RefusalCode
	}{
		"other cluster":          {func(a, b *mux.Mux) { a.SetClusterID("x"); b.SetClusterID("y") }, false, mux.RefusedWrongCluster},
		"other cluster, stream":  {func(a, b *mux.Mux) { a.SetClusterID("x"); b.SetClusterID("y") }, true, mux.RefusedWrongCluster},
		"removed":                {func(a, b *mux.Mux) { b.Refuse(a.ID()) }, false, mux.RefusedRemoved},
		"removed, stream":        {func(a, b *mux.Mux) { b.Refuse(a.ID()) }, true, mux.RefusedRemoved},
		"group does not run":     {func(_, _ *mux.Mux) {}, true, mux.RefusedUnknownGroup},
		"group runs no more":     {func(_, b *mux.Mux) { _ = b.StreamLayer(5).Close() }, true, mux.RefusedUnknownGroup},
		"other group runs":       {func(_, b *mux.Mux) { b.StreamLayer(6) }, true, mux.RefusedUnknownGroup},
		"removed beats unknown":  {func(a, b *mux.Mux) { b.Refuse(a.ID()) }, true, mux.RefusedRemoved},
		"removed from a cluster": {func(a, b *mux.Mux) { a.SetClusterID("x"); b.SetClusterID("x"); b.Refuse(a.ID()) }, false, mux.RefusedRemoved},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, a, b := pair(t)
			test.arrange(a, b)
			var err error
			if test.stream {
				layer := a.StreamLayer(5)
				_, err = layer.Dial(raft.ServerAddress(b.ID()), time.Second)
			} else {
				_, err = a.Call(t.Context(), b.ID(), methodEcho, nil)
			}
			requireRefused(t, err, test.code, b.ID())
		})
	}
}

func TestNodesWithoutClusterAreNotRefused(t *testing.T) {
	for _, clusters := range [][2]string{{"", ""}, {"x", ""}, {"", "x"}, {"x", "x"}} {
		_, a, b := pair(t)
		a.SetClusterID(clusters[0])
		b.SetClusterID(clusters[1])
		_, err := a.Call(t.Context(), b.ID(), methodEcho, nil)
		require.NoError(t, err, clusters)
	}
}

func TestAnotherLifeOfTheNodeIsTheWrongTarget(t *testing.T) {
	network := memnet.New(1)
	a := startNode(t, network, "a")
	reborn := startNode(t, network, "b", func(c *mux.Config) { c.Incarnation = "2" })
	a.SetPeerAddr("b#1", reborn.Addr())
	_, err := a.Call(t.Context(), "b#1", methodEcho, nil)
	requireRefused(t, err, mux.RefusedWrongTarget, "b#2")
	a.SetPeerAddr("b#2", reborn.Addr())
	_, err = a.Call(t.Context(), "b#2", methodEcho, nil)
	require.NoError(t, err)
}

// eventuallyRefused waits until the old connection is gone and the new one refused.
func eventuallyRefused(t *testing.T, from, to *mux.Mux) (err error) {
	t.Helper()
	eventually(t, "calls are refused", func() bool {
		_, err = from.Call(context.Background(), to.ID(), methodEcho, nil)
		var refused *mux.RefusedError
		return errors.As(err, &refused)
	})
	return err
}

func TestRefuseEndsConnectionsInPlace(t *testing.T) {
	_, a, b := pair(t)
	_, err := a.Call(t.Context(), b.ID(), methodEcho, nil)
	require.NoError(t, err)
	b.Refuse(a.ID())
	requireRefused(t, eventuallyRefused(t, a, b), mux.RefusedRemoved, b.ID())
	_, err = b.Call(t.Context(), a.ID(), methodEcho, nil)
	require.NoError(t, err, "the other direction is left to those who decide")
}

func TestJoiningAnotherClusterEndsConnections(t *testing.T) {
	_, a, b := pair(t)
	a.SetClusterID("x")
	b.SetClusterID("x")
	_, err := a.Call(t.Context(), b.ID(), methodEcho, nil)
	require.NoError(t, err)
	a.SetClusterID("y")
	require.Equal(t, "y", a.ClusterID())
	requireRefused(t, eventuallyRefused(t, a, b), mux.RefusedWrongCluster, b.ID())
}

func TestTooManyConnectionsAreRefused(t *testing.T) {
	network := memnet.New(1)
	b := startNode(t, network, "b", func(c *mux.Config) { c.MaxConns = 1 })
	a, c := startNode(t, network, "a"), startNode(t, network, "c")
	a.SetPeerAddr(b.ID(), b.Addr())
	_, err := a.Call(t.Context(), b.ID(), methodEcho, nil)
	require.NoError(t, err)
	_, _, err = c.CallAddr(t.Context(), b.Addr(), methodEcho, nil)
	requireRefused(t, err, mux.RefusedBusy, b.ID())
	a.DropPeer(b.ID())
	eventually(t, "there is room again", func() bool {
		_, _, err = c.CallAddr(context.Background(), b.Addr(), methodEcho, nil)
		return err == nil
	})
}

func TestMovedPeerIsFoundAgain(t *testing.T) {
	network := memnet.New(1)
	a := startNode(t, network, "a")
	here := startNode(t, network, "b")
	a.SetPeerAddr("b#1", here.Addr())
	_, err := a.Call(t.Context(), "b#1", methodEcho, nil)
	require.NoError(t, err)
	require.NoError(t, here.Close())

	there := startNode(t, network, "b", func(c *mux.Config) { c.ListenAddr = "b:7777" })
	_, _, err = there.CallAddr(t.Context(), a.Addr(), methodEcho, nil)
	require.NoError(t, err)
	addr, _ := a.PeerAddr("b#1")
	require.Equal(t, there.Addr(), addr, "the handshake told the new address")
	_, err = a.Call(t.Context(), "b#1", methodEcho, nil)
	require.NoError(t, err)
}

func TestAddressBook(t *testing.T) {
	network, a, b := pair(t)
	_, known := a.PeerAddr("c#1")
	require.False(t, known)
	addr, known := a.PeerAddr(b.ID())
	require.True(t, known)
	require.Equal(t, b.Addr(), addr)
	c := startNode(t, network, "c", func(cfg *mux.Config) { cfg.Advertise = "elsewhere" })
	_, _, err := a.CallAddr(t.Context(), "c:10000", methodEcho, nil)
	require.NoError(t, err)
	addr, known = a.PeerAddr(c.ID())
	require.True(t, known, "whoever answers is noted")
	require.Equal(t, "elsewhere:10000", addr)
	a.SetPeerAddr(c.ID(), "c:10000")
	_, err = a.Call(t.Context(), c.ID(), methodEcho, nil)
	require.NoError(t, err)
	addr, _ = a.PeerAddr(c.ID())
	require.Equal(t, "c:10000", addr, "what it says does not replace what has just worked")
	a.SetPeerAddr(c.ID(), "")
	_, known = a.PeerAddr(c.ID())
	require.False(t, known)
	_, err = a.Call(t.Context(), c.ID(), methodEcho, nil)
	require.ErrorIs(t, err, mux.ErrUnreachable)
}

func TestSecrets(t *testing.T) {
	tests := map[string]struct {
		server, client string
		wrong          bool
	}{
		"both none":         {"", "", false},
		"same":              {"s", "s", false},
		"different":         {"s", "t", true},
		"only the listener": {"s", "", true},
		"only the dialer":   {"", "s", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			forEachNetwork(t, func(t *testing.T, n networkCase) {
				cfg := testConfig("server", n.host)
				cfg.Secret = []byte(test.server)
				server := open(t, cfg, mux.Deps{Network: n.server})
				server.Handle(methodEcho, echo)
				server.Start()
				cfg = mux.DefaultConfig()
				cfg.Secret = []byte(test.client)
				tool := open(t, cfg, mux.Deps{Network: n.client})
				_, peer, err := tool.CallAddr(t.Context(), server.Addr(), methodEcho, nil)
				if !test.wrong {
					require.NoError(t, err)
					require.Equal(t, server.ID(), peer.ID)
					return
				}
				require.ErrorIs(t, err, mux.ErrWrongSecret)
				require.ErrorIs(t, err, mux.ErrUnreachable)
			})
		})
	}
}
