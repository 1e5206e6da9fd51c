package mux_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/raftnode/mux"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

var seedFlag = flag.Uint64("seed", 0, "seed of randomised tests, 0 picks one")

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

// seed returns the seed of a randomised test and prints it.
func seed(t *testing.T) uint64 {
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed %d", s)
	return s
}

const (
	methodEcho mux.Method = iota + 1
	methodBlock
	methodFail
)

// testConfig is the configuration of a node listening on host.
func testConfig(nodeID, host string) mux.Config {
	cfg := mux.DefaultConfig()
	cfg.ListenAddr, cfg.NodeID, cfg.Incarnation = host+":0", nodeID, "1"
	return cfg
}

// open opens a node and closes it at the end of the test.
func open(t testing.TB, cfg mux.Config, deps mux.Deps) *mux.Mux {
	t.Helper()
	m, err := mux.Open(cfg, deps)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// echo answers with the request.
func echo(_ context.Context, _ mux.Peer, body []byte) ([]byte, error) { return body, nil }

// startNode opens a node on a memory network that answers methodEcho.
func startNode(t testing.TB, network *memnet.Network, nodeID string, change ...func(*mux.Config)) *mux.Mux {
	t.Helper()
	cfg := testConfig(nodeID, nodeID)
	for _, c := range change {
		c(&cfg)
	}
	m := open(t, cfg, mux.Deps{Network: network.Host(nodeID)})
	m.Handle(methodEcho, echo)
	m.Start()
	return m
}

// pair returns two started nodes that know each other's address.
func pair(t testing.TB, change ...func(*mux.Config)) (*memnet.Network, *mux.Mux, *mux.Mux) {
	t.Helper()
	network := memnet.New(1)
	a, b := startNode(t, network, "a", change...), startNode(t, network, "b", change...)
	a.SetPeerAddr(b.ID(), b.Addr())
	b.SetPeerAddr(a.ID(), a.Addr())
	return network, a, b
}

// within returns a context that ends with the test or after a while.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 10*time.Second, 2*time.Millisecond, what)
}

var _ mux.Network = (*memnet.Host)(nil)
