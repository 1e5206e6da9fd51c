package partitions

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/partitions/live"
	"github.com/quorate/quorate/partitions/notice"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// fleet is five nodes on one network of memory, with real state machines and real calls.
// Each of the six groups is on three of them, so that no node has everything. Its log is
// shared: what is proposed at a leader is applied by all holders at once, but for those
// that stand still.
type fleet struct {
	t     *testing.T
	net   *memnet.Network
	nodes []*fleetNode

	// mu protects the fields below, and those of the nodes that say so.
	mu    sync.Mutex
	logs  map[uint32][]fsm.Entry
	state *system.State
	now   int64
}

type fleetNode struct {
	fleet  *fleet
	name   string
	id     raftnode.ServerID
	mux    *mux.Mux
	hub    *live.Hub
	board  *notice.Board
	router *Router
	clock  fakeClock
	// indexes are those of its replicas; none is defined.
	indexes *fsm.Indexes

	// Protected by fleet.mu: what the node holds, and whether it applies what comes.
	machines map[uint32]*fsm.Machine
	still    bool
	// calls counts the reads that this node asked of each other one.
	calls map[raftnode.ServerID]int
}

const fleetSize = 5

// newFleet starts the nodes. Group g is on nodes g, g+1 and g+2, counted from 0 around
// the circle; the first one leads.
func newFleet(t *testing.T, configure ...func(*Config)) *fleet {
	f := &fleet{t: t, net: memnet.New(1), logs: map[uint32][]fsm.Entry{}, now: fakeNow}
	f.state = &system.State{
		Genesis: &system.Genesis{ClusterID: "c", Groups: 6, ReplicationFactor: 3},
		Table:   system.Table{Version: 1, Groups: make([]system.Placement, 6)},
	}
	for i := range fleetSize {
		f.nodes = append(f.nodes, f.open(fmt.Sprintf("n%d", i), configure))
	}
	for _, n := range f.nodes {
		f.state.Members = append(f.state.Members, system.Member{ID: string(n.id), NodeID: n.name, Status: system.StatusActive, Version: 1})
		for _, other := range f.nodes {
			n.mux.SetPeerAddr(other.id, other.mux.Addr())
		}
	}
	for group := uint32(1); group <= 6; group++ {
		p := &f.state.Table.Groups[group-1]
		for i := range 3 {
			n := f.nodes[(int(group)+i)%fleetSize]
			n.hold(group)
			p.Voters = append(p.Voters, string(n.id))
		}
		p.Leader = p.Voters[0]
	}
	for _, n := range f.nodes {
		n.mux.Start()
	}
	return f
}

func (f *fleet) open(name string, configure []func(*Config)) *fleetNode {
	n := &fleetNode{fleet: f, name: name, hub: live.NewHub(), board: new(notice.Board), indexes: fsm.NewIndexes(), machines: map[uint32]*fsm.Machine{}, calls: map[raftnode.ServerID]int{}}
	cfg := mux.DefaultConfig()
	cfg.ListenAddr, cfg.NodeID, cfg.Incarnation = name+":0", name, "1"
	var err error
	n.mux, err = mux.Open(cfg, mux.Deps{Network: f.net.Host(name)})
	require.NoError(f.t, err)
	n.id = n.mux.ID()
	rc := DefaultConfig()
	rc.Self = n.id
	for _, c := range configure {
		c(&rc)
	}
	n.router = New(rc, Deps{
		Logger: hclog.NewNullLogger(), Groups: n, Peers: n, Clock: &n.clock, Hub: n.hub, Board: n.board,
		Physical: func() int64 { return fakeNow },
		Cluster:  f.cluster, Admit: func(context.Context) error { return nil },
	})
	done := make(chan struct{})
	var ran sync.WaitGroup
	ran.Go(func() { n.hub.Run(done) })
	f.t.Cleanup(func() {
		n.router.Close()
		require.NoError(f.t, n.mux.Close())
		close(done)
		ran.Wait()
	})
	return n
}

func (f *fleet) cluster() *system.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// hold gives n a replica of a group, which applies the log from its beginning.
func (n *fleetNode) hold(group uint32) {
	store := memory.New(memory.Config{})
	flusher, err := writebehind.New(writebehind.DefaultConfig(), writebehind.Deps{Logger: hclog.NewNullLogger(), Store: store})
	require.NoError(n.fleet.t, err)
	cfg := fsm.DefaultConfig(group)
	cfg.Indexes = n.indexes
	m, err := fsm.Open(cfg, fsm.Deps{
		Logger: hclog.NewNullLogger(), Store: store, Flusher: flusher, Listening: n.hub.Listening,
		OnChange: func(c *fsm.Changes) { n.hub.Publish(c); n.board.Publish(c) },
	})
	require.NoError(n.fleet.t, err)
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	n.machines[group] = m
	n.catchUpLocked(group)
}

// lose takes a replica away, as the table says then too.
func (n *fleetNode) lose(group uint32) {
	f := n.fleet
	f.mu.Lock()
	delete(n.machines, group)
	f.retableLocked(group, func(p *system.Placement) {
		p.Voters = slices.DeleteFunc(slices.Clone(p.Voters), func(id string) bool { return id == string(n.id) })
		p.Leader = p.Voters[0]
	})
	f.mu.Unlock()
	gone := &fsm.Changes{Group: group, Reset: true}
	n.hub.Publish(gone)
	n.board.Publish(gone)
}

// retableLocked changes the placement of a group in a new state.
func (f *fleet) retableLocked(group uint32, change func(*system.Placement)) {
	next := *f.state
	next.Table.Groups = slices.Clone(next.Table.Groups)
	next.Table.Version++
	change(&next.Table.Groups[group-1])
	f.state = &next
}

func (n *fleetNode) catchUpLocked(group uint32) {
	m := n.machines[group]
	if m == nil || n.still {
		return
	}
	applied, _ := m.Applied()
	if _, err := m.Apply(n.fleet.logs[group][applied:]); err != nil {
		panic(err)
	}
}

// stand has n apply nothing any more, or everything again.
func (n *fleetNode) stand(still bool) {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	n.still = still
	for group := range n.machines {
		n.catchUpLocked(group)
	}
}

// lacks is a group that n does not hold, and its holders, the leader first.
func (n *fleetNode) lacks() (group uint32, holders []*fleetNode) {
	f := n.fleet
	for g, p := range f.cluster().Table.Groups {
		if !slices.Contains(p.Voters, string(n.id)) {
			for _, id := range p.Voters {
				holders = append(holders, f.node(id))
			}
			return uint32(g) + 1, holders
		}
	}
	f.t.Fatalf("%s has everything", n.name)
	return 0, nil
}

func (f *fleet) node(id string) *fleetNode {
	for _, n := range f.nodes {
		if string(n.id) == id {
			return n
		}
	}
	return nil
}

// Propose implements Groups.
func (n *fleetNode) Propose(group uint32, cmds []raftnode.Command) (raftnode.Proposal, error) {
	f := n.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	m := n.machines[group]
	if leader := f.state.Table.Groups[group-1].Leader; m == nil || n.still || leader != string(n.id) {
		return nil, &raftnode.NotLeaderError{Group: group, Leader: raftnode.ServerID(leader)}
	}
	f.now++
	data := command.AppendEntry(nil, protocol.Timestamp{Millis: f.now, NodeID: "log"}, cmds)
	f.logs[group] = append(f.logs[group], fsm.Entry{Index: uint64(len(f.logs[group])) + 1, Term: 1, Data: data})
	results, err := m.Apply(f.logs[group][len(f.logs[group])-1:])
	if err != nil {
		panic(err)
	}
	for _, other := range f.nodes {
		if other != n {
			other.catchUpLocked(group)
		}
	}
	return decided(results[0]), nil
}

// decided is a proposal that has its results.
type decided []command.Result

func (d decided) Wait(context.Context) ([]command.Result, error) { return d, nil }

// Leader implements Groups.
func (n *fleetNode) Leader(group uint32) (raftnode.ServerID, uint64) {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	if n.machines[group] == nil {
		return "", 0
	}
	return raftnode.ServerID(n.fleet.state.Table.Groups[group-1].Leader), 1
}

// Term implements Groups.
func (n *fleetNode) Term(group uint32) (uint64, bool) {
	leader, _ := n.Leader(group)
	return 1, leader == n.id
}

// Replica implements Groups.
func (n *fleetNode) Replica(group uint32) (Replica, bool) {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	m := n.machines[group]
	return m, m != nil
}

// WaitApplied implements Groups.
func (n *fleetNode) WaitApplied(ctx context.Context, group uint32, index uint64) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		replica, held := n.Replica(group)
		if !held {
			return raftnode.ErrNotHere
		}
		if applied, _ := replica.Applied(); applied >= index {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Handle implements Peers.
func (n *fleetNode) Handle(method mux.Method, h mux.Handler) { n.mux.Handle(method, h) }

// ClusterID implements Peers.
func (n *fleetNode) ClusterID() string { return "c" }

// Call implements Peers.
func (n *fleetNode) Call(ctx context.Context, to raftnode.ServerID, method mux.Method, body []byte) ([]byte, error) {
	if method == methodRead {
		n.fleet.mu.Lock()
		n.calls[to]++
		n.fleet.mu.Unlock()
	}
	return n.mux.Call(ctx, to, method, body)
}

// asked is how many reads n asked of another node so far.
func (n *fleetNode) asked(of *fleetNode) int {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	return n.calls[of.id]
}

// put writes records k<from> to k<to-1> of map m through n.
func (n *fleetNode) put(s *Session, from, to int, millis int64) {
	n.fleet.t.Helper()
	var ops []Op
	for i := from; i < to; i++ {
		o := op(fmt.Sprintf("k%04d", i), millis)
		o.Record.Value = []byte{byte(i & 0x7f)}
		ops = append(ops, o)
	}
	verdicts, err := n.router.Write(deadline(n.fleet.t, 30*time.Second), s, ops)
	require.NoError(n.fleet.t, err)
	for _, v := range verdicts {
		require.False(n.fleet.t, v.Refused(), "%+v", v)
	}
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 30*time.Second, 2*time.Millisecond, what)
}
