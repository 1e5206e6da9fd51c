package mux_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/raftnode/mux"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// transport attaches a Raft transport for a group that answers every request.
func transport(t *testing.T, m *mux.Mux, group uint32) *raft.NetworkTransport {
	t.Helper()
	trans := newTransport(m, group)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case rpc := <-trans.Consumer():
				answer(rpc, group)
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		require.NoError(t, trans.Close())
	})
	return trans
}

func newTransport(m *mux.Mux, group uint32) *raft.NetworkTransport {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: m.StreamLayer(group), MaxPool: 2, MaxRPCsInFlight: 1, Timeout: time.Second,
		Logger: hclog.NewNullLogger(),
	})
}

// answer replies with the group's number as the term.
func answer(rpc raft.RPC, group uint32) {
	switch req := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		rpc.Respond(&raft.AppendEntriesResponse{Term: uint64(group), LastLog: req.PrevLogEntry, Success: true}, nil)
	case *raft.RequestVoteRequest:
		rpc.Respond(&raft.RequestVoteResponse{Term: uint64(group), Granted: true}, nil)
	case *raft.InstallSnapshotRequest:
		n, err := io.Copy(io.Discard, rpc.Reader)
		rpc.Respond(&raft.InstallSnapshotResponse{Term: uint64(group), Success: n == req.Size}, err)
	default:
		rpc.Respond(nil, errors.New("unexpected request"))
	}
}

func requireRoundTrips(t *testing.T, from *raft.NetworkTransport, to raft.ServerID, group uint32) {
	t.Helper()
	addr := raft.ServerAddress(to)
	header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("a#1"), Addr: []byte("a#1")}
	var appended raft.AppendEntriesResponse
	require.NoError(t, from.AppendEntries(to, addr, &raft.AppendEntriesRequest{RPCHeader: header, Term: 1, PrevLogEntry: 41}, &appended))
	require.Equal(t, uint64(41), appended.LastLog)
	require.Equal(t, uint64(group), appended.Term)
	var vote raft.RequestVoteResponse
	require.NoError(t, from.RequestVote(to, addr, &raft.RequestVoteRequest{RPCHeader: header, Term: 1}, &vote))
	require.True(t, vote.Granted)
}

func TestRaftTransportOverStreams(t *testing.T) {
	for _, secret := range []string{"", "secret"} {
		t.Run("secret "+secret, func(t *testing.T) {
			forEachNetwork(t, func(t *testing.T, n networkCase) {
				cfg := testConfig("b", n.host)
				cfg.Secret = []byte(secret)
				b := open(t, cfg, mux.Deps{Network: n.server})
				b.Start()
				cfg = mux.DefaultConfig()
				cfg.NodeID, cfg.Incarnation, cfg.Secret = "a", "1", []byte(secret)
				a := open(t, cfg, mux.Deps{Network: n.client})
				a.SetPeerAddr(b.ID(), b.Addr())
				for _, group := range []uint32{0, 3} {
					transport(t, b, group)
					from := transport(t, a, group)
					require.Equal(t, raft.ServerAddress("a#1"), from.LocalAddr())
					requireRoundTrips(t, from, b.ID(), group)

					var installed raft.InstallSnapshotResponse
					const size = 3 << 20
					require.NoError(t, from.InstallSnapshot(b.ID(), raft.ServerAddress(b.ID()),
						&raft.InstallSnapshotRequest{Size: size, RPCHeader: raft.RPCHeader{ProtocolVersion: 3}},
						&installed, io.LimitReader(zeros{}, size)))
					require.True(t, installed.Success)
				}
			})
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestRaftTransportFindsMovedPeer(t *testing.T) {
	network := memnet.New(1)
	a, b := startNode(t, network, "a"), startNode(t, network, "b")
	from := transport(t, a, 1)
	_, err := a.StreamLayer(2).Dial(raft.ServerAddress(b.ID()), time.Second)
	require.ErrorIs(t, err, mux.ErrUnreachable, "no address yet")
	a.SetPeerAddr(b.ID(), b.Addr())
	to := transport(t, b, 1)
	requireRoundTrips(t, from, b.ID(), 1)
	require.NoError(t, to.Close())
	require.NoError(t, b.Close())

	moved := startNode(t, network, "b", func(c *mux.Config) { c.ListenAddr = "b:7777" })
	transport(t, moved, 1)
	a.SetPeerAddr(moved.ID(), moved.Addr())
	eventually(t, "the new address is used", func() bool {
		var vote raft.RequestVoteResponse
		return from.RequestVote("b#1", "b#1", &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3}}, &vote) == nil
	})
}

func TestGroupCanBeAttachedAgain(t *testing.T) {
	_, a, b := pair(t)
	from := transport(t, a, 1)
	for range 3 {
		to := newTransport(b, 1)
		require.Panics(t, func() { b.StreamLayer(1) })
		served := make(chan struct{})
		go func() {
			defer close(served)
			answer(<-to.Consumer(), 1)
		}()
		eventually(t, "the instance answers", func() bool {
			var vote raft.RequestVoteResponse
			return from.RequestVote(b.ID(), raft.ServerAddress(b.ID()), &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3}}, &vote) == nil
		})
		<-served
		require.NoError(t, to.Close())
	}
}

func TestClosingALayerClosesItsStreamsOnly(t *testing.T) {
	_, a, b := pair(t)
	layers := map[uint32]raft.StreamLayer{}
	var near, far [2]net.Conn
	for i := range near {
		group := uint32(i + 1)
		layers[group] = b.StreamLayer(group)
		var err error
		near[i], err = a.StreamLayer(group).Dial(raft.ServerAddress(b.ID()), time.Second)
		require.NoError(t, err)
		far[i], err = layers[group].Accept()
		require.NoError(t, err)
	}
	require.NoError(t, layers[1].Close())
	require.NoError(t, layers[1].Close())
	_, err := layers[1].Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = near[0].Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
	_, err = near[1].Write([]byte("still here"))
	require.NoError(t, err)
	got := make([]byte, 10)
	_, err = io.ReadFull(far[1], got)
	require.NoError(t, err)
	_, err = a.Call(t.Context(), b.ID(), methodEcho, nil)
	require.NoError(t, err)
}

// counter is a state machine that counts.
type counter struct{ n int }

func (c *counter) Apply(*raft.Log) any                 { c.n++; return c.n }
func (c *counter) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("not needed") }
func (c *counter) Restore(io.ReadCloser) error         { return errors.New("not needed") }

// TestRaftSurvivesIsolatedLeader runs three real Raft nodes in virtual time.
func TestRaftSurvivesIsolatedLeader(t *testing.T) {
	s := seed(t)
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(s)
		network.SetLinks(memnet.Link{Latency: 2 * time.Millisecond, Jitter: 3 * time.Millisecond})
		nodes := raftCluster(t, network, 3)
		for round := range 6 {
			leader := waitLeader(t, nodes)
			_, id := leader.LeaderWithID()
			how := []memnet.Cut{memnet.Blackhole, memnet.Reset}[round%2]
			network.Isolate(how, string(id[:2]))
			rest := slices.DeleteFunc(slices.Clone(nodes), func(n *raft.Raft) bool { return n == leader })
			require.NoError(t, waitLeader(t, rest).Apply([]byte("x"), time.Second).Error(), "round %d", round)
			network.Heal()
			time.Sleep(30 * time.Second)
		}
		for _, n := range nodes {
			require.Equal(t, nodes[0].LastIndex(), n.LastIndex())
		}
	})
}

// raftCluster starts Raft nodes named n0, n1 and so on, and stops them with the test.
func raftCluster(t *testing.T, network *memnet.Network, size int) []*raft.Raft {
	t.Helper()
	var muxes []*mux.Mux
	var servers []raft.Server
	for i := range size {
		name := fmt.Sprintf("n%d", i)
		m := startNode(t, network, name, func(c *mux.Config) { c.Secret = []byte("secret") })
		muxes = append(muxes, m)
		servers = append(servers, raft.Server{ID: m.ID(), Address: raft.ServerAddress(m.ID())})
	}
	var nodes []*raft.Raft
	for _, m := range muxes {
		for _, other := range muxes {
			m.SetPeerAddr(other.ID(), other.Addr())
		}
		cfg := raft.DefaultConfig()
		cfg.LocalID, cfg.Logger = m.ID(), hclog.NewNullLogger()
		store, snapshots, trans := raft.NewInmemStore(), raft.NewInmemSnapshotStore(), newTransport(m, 1)
		require.NoError(t, raft.BootstrapCluster(cfg, store, store, snapshots, trans, raft.Configuration{Servers: servers}))
		r, err := raft.NewRaft(cfg, &counter{}, store, store, snapshots, trans)
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, r.Shutdown().Error())
			require.NoError(t, trans.Close())
		})
		nodes = append(nodes, r)
	}
	return nodes
}

// waitLeader waits until one of the nodes leads and has committed in its term.
func waitLeader(t *testing.T, nodes []*raft.Raft) *raft.Raft {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(10 * time.Millisecond) {
		for _, n := range nodes {
			if n.State() == raft.Leader && n.Barrier(time.Second).Error() == nil {
				return n
			}
		}
	}
	require.FailNow(t, "no leader in a minute")
	return nil
}
