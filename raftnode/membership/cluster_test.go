package membership

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

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/hlc"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "seed of randomised tests; 0 chooses one")
	roundsFlag = flag.Int("rounds", 2, "how often randomised tests of whole clusters are repeated")
	logFlag    = flag.Bool("clusterlog", false, "print the logs of simulated nodes")
)

// testGroups is the number of data groups of simulated clusters.
const testGroups = 3

// cluster is a set of simulated nodes on one simulated network.
type cluster struct {
	t     *testing.T
	net   *memnet.Network
	rng   *rand.Rand
	seeds []string
	nodes []*node
	tweak func(*Config)
	load  *writing
	// hosts are those of the running nodes, for the load's goroutine.
	hosts atomic.Pointer[[]*raftnode.Host]
}

// node is one simulated node. What survives its death: fs and store.
type node struct {
	c      *cluster
	name   string
	addr   string
	secret string
	seeds  []string
	// advertise replaces addr in what the node says about itself.
	advertise string
	// null is a node without a disk.
	null  bool
	fs    *logstore.MemFS
	store *memory.Store

	running bool
	// dead is set when this life is killed: its storage fails then.
	dead    *atomic.Bool
	id      raftnode.ServerID
	mux     *mux.Mux
	log     *logstore.Log
	flusher *writebehind.Flusher
	host    *raftnode.Host
	agent   *Agent
	cancel  context.CancelFunc
	flushed chan struct{}
	// ended receives what Run returned.
	ended chan error
}

// simulate runs a test of a cluster of n nodes in simulated time. The nodes know
// each other as seeds and are not started. They are killed at the end.
func simulate(t *testing.T, n int, seed uint64, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, net: memnet.New(seed), rng: rand.New(rand.NewPCG(seed, 3))}
		c.net.SetLinks(memnet.Link{Latency: 200 * time.Microsecond, Jitter: 300 * time.Microsecond})
		defer func() {
			c.load.halt()
			for _, n := range c.nodes {
				n.kill()
			}
		}()
		for i := range n {
			c.seeds = append(c.seeds, fmt.Sprintf("n%d:7000", i+1))
			c.add(fmt.Sprintf("n%d", i+1))
		}
		test(t, c)
	})
}

// randomised runs a test with several seeds, or with the one given as a flag.
func randomised(t *testing.T, test func(t *testing.T, seed uint64)) {
	t.Helper()
	if *seedFlag != 0 {
		test(t, *seedFlag)
		return
	}
	for range *roundsFlag {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { test(t, seed) })
	}
}

// add makes a node with an empty disk. Its seeds are the cluster's at its start.
func (c *cluster) add(name string) *node {
	n := &node{c: c, name: name, addr: name + ":7000"}
	n.wipe()
	c.nodes = append(c.nodes, n)
	return n
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// startAll starts all nodes in random order, up to a second apart.
func (c *cluster) startAll() {
	c.t.Helper()
	for _, i := range c.rng.Perm(len(c.nodes)) {
		c.nodes[i].start()
		time.Sleep(time.Duration(c.rng.IntN(1000)) * time.Millisecond)
	}
}

// wipe gives a node an empty disk.
func (n *node) wipe() {
	n.fs = logstore.NewMemFS()
	n.store = memory.New(memory.Config{Durable: !n.null})
}

func (n *node) logger() hclog.Logger {
	if !*logFlag {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: n.name, Level: hclog.Debug, TimeFormat: "04:05.000"})
}

func (n *node) start() {
	c, logger := n.c, n.logger()
	c.t.Helper()
	if n.null {
		n.wipe()
	}
	identity, err := LoadIdentity(n.store, n.name)
	c.must(err)
	n.id = identity.ID()

	mcfg := mux.DefaultConfig()
	mcfg.NodeID, mcfg.Incarnation, mcfg.ListenAddr, mcfg.Secret = n.name, identity.Incarnation, n.addr, []byte(n.secret)
	mcfg.Advertise = n.advertise
	n.mux, err = mux.Open(mcfg, mux.Deps{Network: c.net.Host(n.machine()), Logger: logger.Named("mux")})
	c.must(err)
	n.log, err = logstore.Open(logstore.MemConfig("wal"), logstore.Deps{Logger: logger, FS: n.fs})
	c.must(err)
	n.flusher, err = writebehind.New(writebehind.DefaultConfig(), writebehind.Deps{Logger: logger, Store: n.store})
	c.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.flushed, n.ended = cancel, make(chan struct{}), make(chan error, 1)
	n.dead = &atomic.Bool{}
	flusher, flushed, ended, store, dead := n.flusher, n.flushed, n.ended, n.store, n.dead
	go func() {
		defer close(flushed)
		_ = flusher.Run(ctx)
	}()
	hcfg := raftnode.DefaultConfig()
	hcfg.ID = n.id
	n.host = raftnode.NewHost(hcfg, raftnode.Deps{
		Logger: logger, Mux: n.mux, Log: n.log,
		Clock: hlc.New(n.name, func() int64 { return time.Now().UnixMilli() }),
		NewMachine: func(group uint32) (raftnode.StateMachine, error) {
			return fsm.Open(fsm.DefaultConfig(group), fsm.Deps{Logger: logger, Store: store, Flusher: flusher})
		},
		DropMachine: store.Drop,
		Fatal: func(err error) {
			if !dead.Load() {
				c.t.Errorf("%s: fatal: %v", n.name, err)
			}
		},
	})
	cfg := DefaultConfig()
	cfg.NodeID, cfg.Incarnation, cfg.ClientURL = n.name, identity.Incarnation, "ws://"+n.addr+"/ws"
	cfg.Groups, cfg.Seeds = testGroups, n.seeds
	if n.seeds == nil {
		cfg.Seeds = c.seeds
	}
	if c.tweak != nil {
		c.tweak(&cfg)
	}
	n.agent, err = New(cfg, Deps{
		Logger: logger, Host: n.host, Mux: n.mux, Identity: n.store, Place: placeSpread, Stored: n.log.Groups,
		Physical: func() int64 { return time.Now().UnixMilli() },
	})
	c.must(err)
	n.mux.Start()
	agent := n.agent
	go func() { ended <- agent.Run(ctx) }()
	n.running = true
	c.publish()
}

// host_ is the name of the machine: the address without its port.
func (n *node) machine() string { return n.addr[:len(n.addr)-5] }

// kill ends the node as a power loss does: what was not synced is gone.
func (n *node) kill() {
	if !n.running {
		return
	}
	n.running = false
	n.c.publish()
	n.dead.Store(true)
	n.fs.Crash()
	n.c.net.CrashHost(n.machine())
	n.cancel()
	<-n.ended
	<-n.flushed
	_ = n.host.Close() // a killed node may complain about its storage
	_ = n.log.Abandon()
	_ = n.mux.Close()
}

// wait blocks until Run has ended by itself, and returns what it returned.
func (n *node) wait(limit time.Duration) error {
	n.c.t.Helper()
	select {
	case err := <-n.ended:
		n.ended <- nil // for kill
		return err
	case <-time.After(limit):
		n.c.t.Fatalf("%s: Run did not end within %s", n.name, limit)
		return nil
	}
}

// eventually polls until ok answers true and returns how long that took.
func (c *cluster) eventually(limit time.Duration, what string, ok func() bool) time.Duration {
	c.t.Helper()
	start := time.Now()
	for ; !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > limit {
			c.t.Fatalf("not within %s: %s\n%s", limit, what, c.describe())
		}
	}
	return time.Since(start)
}

// describe renders the cluster for failures.
func (c *cluster) describe() string {
	var text string
	for _, n := range c.nodes {
		if !n.running {
			text += n.name + ": down\n"
			continue
		}
		s := n.agent.Status()
		text += fmt.Sprintf("%s: %s %s cluster %s\n", s.ID, s.Addr, s.Phase, s.ClusterID)
		for _, m := range s.Members {
			text += fmt.Sprintf("    %s %s at %s, silent %s\n", m.ID, m.Status, m.PeerAddr, m.Silence)
		}
		for _, g := range s.Groups {
			text += fmt.Sprintf("    group %d: %s ready %v leader %s term %d commit %d applied %d voters %v nonvoters %v\n",
				g.Group, g.Role, g.Ready, g.Leader, g.Term, g.CommitIndex, g.AppliedIndex, g.Voters, g.Nonvoters)
		}
		for i, p := range s.Table.Groups {
			text += fmt.Sprintf("    table %d.%d: %v preferred %s leader %s term %d\n", s.Table.Version, i+1, p.Voters, p.Preferred, p.Leader, p.LeaderTerm)
		}
	}
	return text
}

// up are the running nodes.
func (c *cluster) up() []*node {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return !n.running })
}

// publish lists the running hosts for the load.
func (c *cluster) publish() {
	var hosts []*raftnode.Host
	for _, n := range c.up() {
		hosts = append(hosts, n.host)
	}
	c.hosts.Store(&hosts)
}

// formed waits until the running nodes, and no others, are active members of one
// cluster in which every group has replicas and a leader.
func (c *cluster) formed(limit time.Duration) time.Duration {
	c.t.Helper()
	took := c.eventually(limit, "all nodes in place", func() bool { return c.inPlace(c.up()) })
	c.oneCluster()
	return took
}

func (c *cluster) inPlace(up []*node) bool {
	for _, n := range up {
		state := n.agent.State()
		if state == nil || n.agent.Phase() != PhaseMember || !n.agent.CaughtUp() {
			return false
		}
		if active(state) != len(up) || len(state.Table.Groups) != testGroups {
			return false
		}
		for i, p := range state.Table.Groups {
			if len(p.Voters) != min(3, len(up)) || p.Leader == "" {
				return false
			}
			if leader := c.byID(p.Leader); leader == nil || !leader.leads(uint32(i)+1, p.Voters) {
				return false
			}
		}
	}
	return true
}

func active(state *system.State) int {
	count := 0
	for _, m := range state.Members {
		if m.Status == system.StatusActive {
			count++
		}
	}
	return count
}

func (c *cluster) byID(id string) *node {
	for _, n := range c.nodes {
		if n.running && string(n.id) == id {
			return n
		}
	}
	return nil
}

// leads reports whether n leads group with exactly these voters.
func (n *node) leads(group uint32, voters []string) bool {
	g, ok := n.host.Group(group)
	if !ok {
		return false
	}
	s := g.Status()
	have := texts(s.Voters)
	slices.Sort(have)
	return s.Ready && slices.Equal(have, voters) && len(s.Nonvoters) == 0
}

// oneCluster fails if two nodes belong to different clusters.
func (c *cluster) oneCluster() {
	c.t.Helper()
	var id string
	for _, n := range c.nodes {
		rec, err := loadIdentityRecord(n.store)
		c.must(err)
		if id == "" {
			id = rec.ClusterID
		}
		if rec.ClusterID != "" && rec.ClusterID != id {
			c.t.Fatalf("two clusters: %s and %s\n%s", id, rec.ClusterID, c.describe())
		}
	}
}

// member returns the document of the live identity of a node as n sees it.
func (n *node) member(name string) system.Member {
	if state := n.agent.State(); state != nil {
		for _, m := range state.Members {
			if m.NodeID == name && m.Status != system.StatusRemoved {
				return m
			}
		}
	}
	return system.Member{}
}

// systemLeader is the running node that leads the system group.
func (c *cluster) systemLeader() *node {
	for _, n := range c.up() {
		if g, ok := n.host.Group(raftnode.SystemGroup); ok && g.IsLeader() {
			return n
		}
	}
	return nil
}

// write puts one record into group through its leader, and reports whether it was
// committed.
func (c *cluster) write(group uint32, key string) bool {
	for _, host := range *c.hosts.Load() {
		g, ok := host.Group(group)
		if !ok || !g.IsLeader() {
			continue
		}
		put := command.Put{Map: "m", Key: key, Stamped: true, Overwrite: true, Record: protocol.Record{Value: []byte{1}}}
		p, err := g.Propose([]raftnode.Command{command.EncodePut(put)})
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err = p.Wait(ctx)
		cancel()
		return err == nil
	}
	return false
}

// placeSpread places evenly: previous voters first, while they hold no more than
// their share, then those that hold least. Leaders are spread over active voters.
func placeSpread(list []system.Member, groups uint32, rf int, previous *system.Table) []system.Placement {
	plan := make([]system.Placement, groups)
	rf = min(rf, len(list))
	share := (int(groups)*rf + len(list) - 1) / len(list)
	holds, leads := map[string]int{}, map[string]int{}
	for g := range plan {
		rank := func(m system.Member) int {
			held := previous != nil && g < len(previous.Groups) && slices.Contains(previous.Groups[g].Voters, m.ID)
			return holds[m.ID] + 100*btoi(holds[m.ID] >= share) - 50*btoi(held)
		}
		order := slices.Clone(list)
		slices.SortStableFunc(order, func(a, b system.Member) int { return rank(a) - rank(b) })
		p := &plan[g]
		for _, m := range order[:rf] {
			p.Voters = append(p.Voters, m.ID)
			holds[m.ID]++
			if m.Status == system.StatusActive && (p.Preferred == "" || leads[m.ID] < leads[p.Preferred]) {
				p.Preferred = m.ID
			}
		}
		leads[p.Preferred]++
		slices.Sort(p.Voters)
	}
	return plan
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// asError fails unless err is of type T.
func asError[T error](t *testing.T, err error) T {
	t.Helper()
	var as T
	if !errors.As(err, &as) {
		t.Fatalf("error %v, want %T", err, as)
	}
	return as
}
