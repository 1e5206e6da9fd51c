package mux_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/raftnode/mux"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

func TestCloseEndsEverything(t *testing.T) {
	network := memnet.New(1)
	b, began, ended := blockingNode(t, network, "b")
	a := startNode(t, network, "a")
	a.SetPeerAddr(b.ID(), b.Addr())
	failed := make(chan error, 1)
	go func() {
		_, err := a.Call(context.Background(), b.ID(), methodBlock, nil)
		failed <- err
	}()
	<-began
	require.NoError(t, b.Close())
	<-ended
	err := <-failed
	if remote := (*mux.RemoteError)(nil); !errors.As(err, &remote) { // the handler's last words, if they get out in time
		require.ErrorIs(t, err, mux.ErrNoReply)
	}
	require.NoError(t, a.Close())
	require.NoError(t, a.Close(), "twice is fine")
	_, err = a.Call(t.Context(), b.ID(), methodEcho, nil)
	require.ErrorIs(t, err, mux.ErrClosed)
	require.ErrorIs(t, err, mux.ErrUnreachable)
	_, _, err = a.CallAddr(t.Context(), b.Addr(), methodEcho, nil)
	require.ErrorIs(t, err, mux.ErrUnreachable)
	_, err = a.StreamLayer(1).Accept()
	require.Error(t, err)
}

func TestOpenReportsProblems(t *testing.T) {
	bad := mux.Config{ListenAddr: ":0", NodeID: strings.Repeat("n", 300), Incarnation: "a#b"}
	_, err := mux.Open(bad, mux.Deps{})
	for _, want := range []string{"NodeID", "Incarnation", "Advertise", "HandshakeTimeout", "PeerTimeout", "MaxCalls", "MaxMessage"} {
		require.ErrorContains(t, err, want)
	}
	network := memnet.New(1)
	registry := prometheus.NewRegistry()
	cfg := testConfig("a", "a")
	cfg.ListenAddr = "a:7000"
	a := open(t, cfg, mux.Deps{Network: network.Host("a"), Registerer: registry})
	_, err = mux.Open(cfg, mux.Deps{Network: network.Host("a")})
	require.ErrorContains(t, err, "bind cluster port a:7000")
	_, err = mux.Open(testConfig("a", "a"), mux.Deps{Network: network.Host("a"), Registerer: registry})
	require.ErrorContains(t, err, "register metrics")
	require.Panics(t, func() { a.Handle(methodEcho, echo); a.Handle(methodEcho, echo) })
	a.Start()
	require.Panics(t, func() { a.Handle(methodFail, echo) })
}

func TestAdvertisedAddress(t *testing.T) {
	for _, test := range []struct{ listen, advertise, want string }{
		{"a:7000", "", "a:7000"},
		{":7000", "name", "name:7000"},
		{"0.0.0.0:7000", "10.0.0.1", "10.0.0.1:7000"},
		{":7000", "::1", "[::1]:7000"},
		{":7000", "[::1]", "[::1]:7000"},
		{":7000", "proxy:9", "proxy:9"},
	} {
		network := memnet.New(1)
		cfg := testConfig("a", "")
		cfg.ListenAddr, cfg.Advertise = test.listen, test.advertise
		a := open(t, cfg, mux.Deps{Network: network.Host("a")})
		require.Equal(t, test.want, a.Addr())
	}
}

func TestLongBodyOnASlowLineIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, a, b := pair(t)
		network.SetLinks(memnet.Link{BytesPerSecond: 64 << 10})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		body := make([]byte, 4<<20)
		start := time.Now()
		reply, err := a.Call(ctx, b.ID(), methodEcho, body)
		require.NoError(t, err)
		require.Len(t, reply, len(body))
		require.Greater(t, time.Since(start), 2*time.Minute)
	})
}
