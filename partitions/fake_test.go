package partitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/partitions/live"
	"github.com/quorate/quorate/partitions/notice"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

// fakeCluster is a few routers over one shared, instantly consistent log per
// group, with switches for the ways in which a proposal can end.
type fakeCluster struct {
	// mu protects everything below.
	mu      sync.Mutex
	leader  map[uint32]raftnode.ServerID
	applied map[uint32][]raftnode.Command
	// fail is asked before a proposal is applied; "" lets it pass, "unknown" applies
	// it and hides the outcome, "lost" hides the outcome without applying.
	fail    func(group uint32, attempt int) string
	refuse  map[string]protocol.Code // by key
	tries   map[uint32]int
	token   uint64        // the greatest that a lock of any group was given
	hold    chan struct{} // proposals wait for it when not nil
	routers map[raftnode.ServerID]*Router
	nodes   map[raftnode.ServerID]*fakeNode
}

type fakeNode struct {
	cluster *fakeCluster
	id      raftnode.ServerID
	handler mux.Handler
	clock   fakeClock
	down    bool
	token   uint64 // the greatest that its replicas have seen
}

type fakeClock struct {
	mu     sync.Mutex
	newest protocol.Timestamp
}

func (c *fakeClock) Now() protocol.Timestamp { return c.Last() }

func (c *fakeClock) Last() protocol.Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

func (c *fakeClock) Update(ts protocol.Timestamp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ts.Compare(c.newest) > 0 {
		c.newest = ts
	}
}

const fakeNow = 1_000_000_000

func newFakeCluster(t testing.TB, n int, configure ...func(*Config)) *fakeCluster {
	c := &fakeCluster{
		leader: map[uint32]raftnode.ServerID{}, applied: map[uint32][]raftnode.Command{}, refuse: map[string]protocol.Code{},
		tries: map[uint32]int{}, routers: map[raftnode.ServerID]*Router{}, nodes: map[raftnode.ServerID]*fakeNode{},
		fail: func(uint32, int) string { return "" },
	}
	state := &system.State{Genesis: &system.Genesis{ClusterID: "c", Groups: 6, ReplicationFactor: 3}}
	for i := range n {
		id := raftnode.ServerID(fmt.Sprintf("n%d#1", i+1))
		node := &fakeNode{cluster: c, id: id}
		c.nodes[id] = node
		cfg := DefaultConfig()
		cfg.Self, cfg.Patience = id, 200*time.Millisecond
		for _, f := range configure {
			f(&cfg)
		}
		c.routers[id] = New(cfg, Deps{
			Logger: hclog.NewNullLogger(), Groups: node, Peers: node, Clock: &node.clock, Hub: live.NewHub(), Board: new(notice.Board),
			Physical: func() int64 { return fakeNow }, Cluster: func() *system.State { return state },
			Admit: func(context.Context) error { return nil },
		})
		t.Cleanup(c.routers[id].Close)
	}
	for g := range uint32(6) {
		c.leader[g+1] = raftnode.ServerID(fmt.Sprintf("n%d#1", int(g)%n+1))
	}
	return c
}

func (c *fakeCluster) router(i int) *Router {
	return c.routers[raftnode.ServerID(fmt.Sprintf("n%d#1", i))]
}

func (c *fakeCluster) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// keys lists the keys applied so far, with repeats, sorted.
func (c *fakeCluster) keys(t *testing.T) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []string
	for _, cmds := range c.applied {
		for _, cmd := range cmds {
			if cmd.Kind == command.KindRead || cmd.Kind == command.KindLock {
				continue
			}
			put, err := command.DecodePut(cmd)
			require.NoError(t, err)
			keys = append(keys, put.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// count is how many commands of a kind were applied.
func (c *fakeCluster) count(kind command.Kind) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmds := range c.applied {
		for _, cmd := range cmds {
			if cmd.Kind == kind {
				n++
			}
		}
	}
	return n
}

func (n *fakeNode) Leader(group uint32) (raftnode.ServerID, uint64) {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	return n.cluster.leader[group], 1
}

func (n *fakeNode) Term(group uint32) (term uint64, leads bool) {
	leader, _ := n.Leader(group)
	return 1, leader == n.id
}

func (n *fakeNode) WaitApplied(context.Context, uint32, uint64) error { return nil }

func (n *fakeNode) Replica(uint32) (Replica, bool) { return n, true }

func (n *fakeNode) Scan(_, _ string, _ func(string, protocol.Record) bool) (uint64, error) {
	return 0, nil
}

func (n *fakeNode) Seek(fsm.Seek, func(fsm.Found), func(string, protocol.Record) bool) (fsm.Found, uint64, error) {
	return fsm.Found{}, 0, nil
}

func (n *fakeNode) IndexStat(string, string) (fsm.IndexStat, bool) { return fsm.IndexStat{}, false }

func (n *fakeNode) Get(string, string) (protocol.Record, bool, error) {
	return protocol.Record{}, false, nil
}

func (n *fakeNode) MapNames() []string { return nil }

func (n *fakeNode) AddLeaves(string, merkle.Kind, *merkle.Leaves) (uint64, error) { return 0, nil }

func (n *fakeNode) LeafRecords(fsm.Leaf, uint64, func(string, protocol.Record) bool) error {
	return nil
}

func (n *fakeNode) LeafSets(fsm.Leaf, func(protocol.OREntry) bool) error { return nil }

func (n *fakeNode) Set(_, key, _ string) (protocol.OREntry, bool, error) {
	return protocol.OREntry{Key: key}, false, nil
}

func (n *fakeNode) ChangedBuckets(string, uint64) ([]uint16, uint64, error) { return nil, 0, nil }

func (n *fakeNode) Horizon() fsm.Horizon { return fsm.Horizon{} }

func (n *fakeNode) Graves(int64, int) ([]string, error) { return nil, nil }

func (n *fakeNode) Applied() (index, term uint64) { return 0, 0 }

func (n *fakeNode) Lock(string) *lock.Lock { return nil }

func (n *fakeNode) LockStatus(string, lock.Request) lock.Outcome {
	return lock.Outcome{State: lock.Gone}
}

func (n *fakeNode) Locks() []string { return nil }

func (n *fakeNode) GreatestToken() uint64 {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	return n.token
}

func (n *fakeNode) Gateways() map[string]uint64 { return nil }

func (n *fakeNode) Counter(string) ([]command.Cell, uint64, error) { return nil, 0, nil }

// Tag says that every tag beginning with "known" was removed, and that of every one
// beginning with "stray" only the removal was seen.
func (n *fakeNode) Tag(_, tag string) (fsm.TagState, error) {
	switch {
	case strings.HasPrefix(tag, "known"):
		return fsm.TagRemoved, nil
	case strings.HasPrefix(tag, "stray"):
		return fsm.TagHomeless, nil
	default:
		return fsm.TagUnknown, nil
	}
}

func (n *fakeNode) Propose(group uint32, cmds []raftnode.Command) (raftnode.Proposal, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader[group] != n.id {
		return nil, &raftnode.NotLeaderError{Group: group, Leader: c.leader[group]}
	}
	c.tries[group]++
	return &fakeProposal{cluster: c, group: group, cmds: cmds, outcome: c.fail(group, c.tries[group]), hold: c.hold}, nil
}

type fakeProposal struct {
	cluster *fakeCluster
	group   uint32
	cmds    []raftnode.Command
	outcome string
	hold    chan struct{}
}

func (p *fakeProposal) Wait(ctx context.Context) ([]command.Result, error) {
	if p.hold != nil {
		select {
		case <-p.hold:
		case <-ctx.Done():
			return nil, errors.Join(raftnode.ErrUnknown, ctx.Err())
		}
	}
	c := p.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	switch p.outcome {
	case "busy":
		return nil, raftnode.ErrBusy
	case "lost":
		return nil, raftnode.ErrUnknown
	}
	var results []command.Result
	for _, cmd := range p.cmds {
		c.applied[p.group] = append(c.applied[p.group], cmd)
		key, err := keyOf(cmd)
		if err != nil {
			return nil, err
		}
		res := command.Result{Index: uint64(len(c.applied[p.group])), Code: c.refuse[key], Reason: key, Changed: true}
		switch cmd.Kind {
		case command.KindRead:
			res.Value = command.EncodeGreatestToken(c.token)
		case command.KindLock:
			res.Value = lock.AppendOutcome(nil, lock.Outcome{State: lock.Granted, Token: c.token})
		}
		results = append(results, res)
	}
	if p.outcome == "unknown" {
		return nil, raftnode.ErrUnknown
	}
	return results, nil
}

// keyOf is the key that a command is for.
func keyOf(cmd raftnode.Command) (string, error) {
	switch cmd.Kind {
	case command.KindRead:
		return "", command.CheckRead(cmd)
	case command.KindLock:
		m, err := command.DecodeLockRequest(cmd)
		return m.Name, err
	case command.KindDocumentPut:
		_, d, err := command.DecodeDocumentPut(cmd)
		return d.Name, err
	case command.KindORAdd:
		add, err := command.DecodeORAdd(cmd)
		return add.Key, err
	case command.KindORRemove:
		rem, err := command.DecodeORRemove(cmd)
		return rem.Key, err
	default:
		put, err := command.DecodePut(cmd)
		return put.Key, err
	}
}

func (n *fakeNode) Handle(_ mux.Method, h mux.Handler) { n.handler = h }

func (n *fakeNode) ClusterID() string { return "c" }

func (n *fakeNode) Call(ctx context.Context, to raftnode.ServerID, _ mux.Method, body []byte) ([]byte, error) {
	peer := n.cluster.nodes[to]
	n.cluster.mu.Lock()
	down := peer == nil || peer.down
	n.cluster.mu.Unlock()
	if down {
		return nil, mux.ErrUnreachable
	}
	return peer.handler(ctx, mux.Peer{ID: n.id}, body)
}

func op(key string, millis int64) Op {
	return Op{Map: "m", Key: key, Record: protocol.Record{Value: []byte{1}, Timestamp: protocol.Timestamp{Millis: millis, NodeID: "c"}}}
}

var muxPeer = mux.Peer{ID: "n9#1"}
