package raftnode

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/hlc"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

var (
	seedFlag = flag.Uint64("seed", 0, "seed of randomised tests; 0 chooses one")
	logFlag  = flag.Bool("raftlog", false, "print the logs of simulated nodes")
)

// testSeed returns the seed of a randomised test and prints it.
func testSeed(t testing.TB) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: -seed=%d", seed)
	return seed
}

// testGroup is the group that most tests use.
const testGroup uint32 = 1

// cluster is a set of simulated nodes on one simulated network.
type cluster struct {
	t     testing.TB
	net   *memnet.Network
	cfg   Config
	nodes []*node
}

// node is one simulated node. What survives its death: fs and store.
type node struct {
	c    *cluster
	name string
	id   ServerID
	addr string
	fs   *logstore.MemFS
	// store holds the flushed state, like a disk.
	store *memory.Store
	// skew is added to the physical clock, in milliseconds.
	skew atomic.Int64

	running bool
	mux     *mux.Mux
	log     *logstore.Log
	flusher *writebehind.Flusher
	stopRun context.CancelFunc
	runDone chan struct{}
	host    *Host
	fatal   chan error
}

// simulate runs a test of a cluster of n nodes in simulated time. The nodes are
// stopped at the end.
func simulate(t *testing.T, n int, seed uint64, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, n, seed)
		defer c.close()
		test(t, c)
	})
}

func newCluster(t testing.TB, n int, seed uint64) *cluster {
	c := &cluster{t: t, net: memnet.New(seed), cfg: DefaultConfig()}
	c.net.SetLinks(memnet.Link{Latency: 200 * time.Microsecond, Jitter: 300 * time.Microsecond})
	for i := range n {
		c.addNode(fmt.Sprintf("n%d", i+1))
	}
	return c
}

func (c *cluster) addNode(name string) *node {
	n := &node{
		c: c, name: name, id: ServerID(name + "#1"), addr: name + ":7000",
		fs: logstore.NewMemFS(), store: memory.New(memory.Config{Durable: true}),
	}
	c.nodes = append(c.nodes, n)
	return n
}

func (c *cluster) close() {
	for _, n := range c.nodes {
		n.kill()
	}
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// servers is the first configuration: all nodes vote.
func (c *cluster) servers() []raft.Server {
	var list []raft.Server
	for _, n := range c.nodes {
		list = append(list, raft.Server{ID: n.id, Address: raft.ServerAddress(n.id)})
	}
	return list
}

// startAll starts every node with the test group.
func (c *cluster) startAll() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.boot()
		n.startGroup(c.servers())
	}
}

// boot starts a node without groups.
func (n *node) boot() {
	t := n.c.t
	t.Helper()
	var err error
	logger := hclog.NewNullLogger()
	if *logFlag {
		logger = hclog.New(&hclog.LoggerOptions{Name: n.name, Level: hclog.Debug, TimeFormat: "04:05.000"})
	}
	n.fatal = make(chan error, 1)
	fatal := n.fatal

	mcfg := mux.DefaultConfig()
	mcfg.NodeID, mcfg.Incarnation, mcfg.ListenAddr = n.name, "1", n.addr
	n.mux, err = mux.Open(mcfg, mux.Deps{Network: n.c.net.Host(n.name), Logger: logger})
	n.c.must(err)
	n.mux.SetClusterID("test")
	for _, other := range n.c.nodes {
		n.mux.SetPeerAddr(other.id, other.addr)
	}
	n.mux.Start()

	n.log, err = logstore.Open(logstore.MemConfig("wal"), logstore.Deps{Logger: logger, FS: n.fs})
	n.c.must(err)
	n.flusher, err = writebehind.New(writebehind.DefaultConfig(), writebehind.Deps{Logger: logger, Store: n.store})
	n.c.must(err)
	var ctx context.Context
	ctx, n.stopRun = context.WithCancel(context.Background())
	n.runDone = make(chan struct{})
	flusher, done := n.flusher, n.runDone
	go func() {
		defer close(done)
		_ = flusher.Run(ctx) // its failure ends the flushing, which tests look for
	}()

	cfg := n.c.cfg
	cfg.ID = n.id
	n.host = NewHost(cfg, Deps{
		Logger: logger, Mux: n.mux, Log: n.log,
		Clock: hlc.New(n.name, func() int64 { return time.Now().UnixMilli() + n.skew.Load() }),
		NewMachine: func(group uint32) (StateMachine, error) {
			return fsm.Open(fsm.DefaultConfig(group), fsm.Deps{Logger: logger, Store: n.store, Flusher: flusher})
		},
		DropMachine: n.store.Drop,
		Fatal:       func(err error) { fatal <- err },
	})
	n.running = true
}

func (n *node) startGroup(first []raft.Server) *Group {
	n.c.t.Helper()
	g, err := n.host.Start(testGroup, first)
	n.c.must(err)
	return g
}

// restart brings a dead node back with its group.
func (n *node) restart() {
	n.c.t.Helper()
	n.boot()
	n.startGroup(nil)
}

// kill ends the node as a power loss does: what was not synced is gone.
func (n *node) kill() {
	if !n.running {
		return
	}
	n.running = false
	n.fs.Crash()
	n.c.net.CrashHost(n.name)
	n.tearDown()
}

// tearDown ends the goroutines of a node.
func (n *node) tearDown() {
	n.stopRun()
	<-n.runDone
	_ = n.host.Close() // a killed node may complain about its storage
	_ = n.log.Abandon()
	_ = n.mux.Close()
}

// shutdown ends the node in order.
func (n *node) shutdown() {
	n.c.t.Helper()
	n.running = false
	n.c.must(n.host.Close())
	n.stopRun()
	<-n.runDone
	n.c.must(n.flusher.Close(context.Background()))
	n.c.must(n.log.Close())
	n.c.must(n.mux.Close())
}

func (n *node) group() *Group {
	g, ok := n.host.Group(testGroup)
	if !ok {
		n.c.t.Fatalf("%s does not run the group", n.name)
	}
	return g
}

func (n *node) machine() *fsm.Machine { return n.group().Machine().(*fsm.Machine) }

// eventually polls until ok answers true.
func (c *cluster) eventually(limit time.Duration, what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// leader waits for a node that accepts proposals, among the given ones or all.
func (c *cluster) leader(among ...*node) *node {
	c.t.Helper()
	if len(among) == 0 {
		among = c.nodes
	}
	var leader *node
	c.eventually(20*time.Second, "a leader", func() bool {
		i := slices.IndexFunc(among, func(n *node) bool { return n.running && n.group().IsLeader() })
		if i >= 0 {
			leader = among[i]
		}
		return i >= 0
	})
	return leader
}

// others are the running nodes except one.
func (c *cluster) others(than *node) []*node {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return n == than || !n.running })
}

// put is a write of a small text at the proposer's stamp.
func put(key, text string) Command {
	value := append([]byte{0xd9, byte(len(text))}, text...)
	return command.EncodePut(command.Put{
		Map: "m", Key: key, Stamped: true, Overwrite: true, Record: protocol.Record{Value: value},
	})
}

// write proposes one put and waits for its result.
func (n *node) write(limit time.Duration, key, text string) ([]command.Result, error) {
	p, err := n.host.Propose(testGroup, []Command{put(key, text)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return p.Wait(ctx)
}

func (n *node) mustWrite(key, text string) uint64 {
	n.c.t.Helper()
	results, err := n.write(10*time.Second, key, text)
	n.c.must(err)
	return results[0].Index
}

// fill writes count records, several to an entry, and returns the last index.
func (n *node) fill(prefix string, count int) (last uint64) {
	n.c.t.Helper()
	for i := range count {
		last = n.mustWrite(fmt.Sprintf("%s-%d", prefix, i), prefix)
	}
	return last
}

// read returns the text stored under key on this node.
func (n *node) read(key string) string {
	rec, ok, err := n.machine().Get("m", key)
	n.c.must(err)
	if !ok || len(rec.Value) < 2 {
		return ""
	}
	return string(rec.Value[2:])
}

// converge waits until all running nodes have applied the same log, and checks that
// their states are equal.
func (c *cluster) converge() {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			for _, n := range c.nodes {
				if n.running {
					c.t.Logf("%s: %+v", n.name, n.group().Status())
					c.t.Logf("%s gave up: %v", n.name, n.host.failure.Load() != nil)
				}
			}
		}
	}()
	c.eventually(40*time.Second, "equal applied indexes", func() bool {
		applied := make(map[uint64]bool)
		for _, n := range c.nodes {
			if n.running {
				s := n.group().Status()
				applied[s.AppliedIndex] = true
				applied[s.CommitIndex] = true
			}
		}
		return len(applied) == 1
	})
	digests := make(map[uint64][]string)
	for _, n := range c.nodes {
		if n.running {
			_, digest := n.machine().Digest()
			digests[digest] = append(digests[digest], n.name)
		}
	}
	if len(digests) != 1 {
		c.t.Fatalf("states differ: %v", digests)
	}
}

// noFatal fails when a running node declared itself dead.
func (c *cluster) noFatal() {
	c.t.Helper()
	for _, n := range c.nodes {
		select {
		case err := <-n.fatal:
			c.t.Fatalf("%s failed: %v", n.name, err)
		default:
		}
	}
}

func isNotLeader(err error) bool {
	var notLeader *NotLeaderError
	return errors.As(err, &notLeader)
}
