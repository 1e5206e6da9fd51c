package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/hlc"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux"
)

// floorCommand is the hidden subcommand of bench that runs one floor node.
const floorCommand = "floor-node"

// floorGroups is the number of groups, as many as a cluster has for data.
const floorGroups = 6

// floorNode is one process of the floor.
type floorNode struct {
	spec  floorSpec
	mux   *mux.Mux
	wal   *logstore.Log
	host  *raftnode.Host
	fatal chan error
}

// runFloorNode runs one floor node until ctx ends, and prints its result to out.
func runFloorNode(ctx context.Context, arg string, out io.Writer) error {
	n := &floorNode{fatal: make(chan error, 1)}
	if err := json.Unmarshal([]byte(arg), &n.spec); err != nil {
		return fmt.Errorf("decode the floor's task: %w", err)
	}
	if err := n.open(); err != nil {
		return err
	}
	defer n.close()
	if err := n.settle(ctx); err != nil {
		return err
	}
	m := drive(ctx, n.proposers(), n.spec.Warmup, n.spec.Duration, 0)
	result, err := json.Marshal(floorResult{
		Ops: m.ops, Errors: m.errors, Seconds: m.seconds,
		P50: float64(m.latency.ValueAtQuantile(50)), P99: float64(m.latency.ValueAtQuantile(99)),
	})
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	fmt.Fprintf(out, "%s%s\n", resultPrefix, result)
	<-ctx.Done() // the others may still need this replica
	return nil
}

func floorID(index int) raft.ServerID { return raft.ServerID(fmt.Sprintf("f%d#1", index)) }

func (n *floorNode) open() (err error) {
	cfg := mux.DefaultConfig()
	cfg.ListenAddr, cfg.NodeID, cfg.Incarnation = n.spec.Peers[n.spec.Index], fmt.Sprintf("f%d", n.spec.Index), "1"
	if n.mux, err = mux.Open(cfg, mux.Deps{}); err != nil {
		return err
	}
	for i, addr := range n.spec.Peers {
		n.mux.SetPeerAddr(floorID(i), addr)
	}
	if n.wal, err = logstore.Open(logstore.DefaultConfig(filepath.Join(n.spec.Dir, "wal")), logstore.Deps{}); err != nil {
		return errors.Join(err, n.mux.Close())
	}
	raftCfg := raftnode.DefaultConfig()
	raftCfg.ID = floorID(n.spec.Index)
	// An empty machine has nothing to checkpoint.
	raftCfg.SnapshotThreshold, raftCfg.SnapshotBytes = 1<<40, 1<<40
	clock := hlc.New(cfg.NodeID, func() int64 { return time.Now().UnixMilli() })
	n.host = raftnode.NewHost(raftCfg, raftnode.Deps{
		Logger: hclog.NewNullLogger(), Mux: n.mux, Log: n.wal, Clock: clock,
		NewMachine: func(uint32) (raftnode.StateMachine, error) { return &emptyMachine{}, nil },
		Fatal:      func(err error) { n.fatal <- err },
	})
	n.mux.Start()
	var servers []raft.Server
	for i := range n.spec.Peers {
		servers = append(servers, raft.Server{ID: floorID(i), Address: raft.ServerAddress(floorID(i))})
	}
	for g := range uint32(floorGroups) {
		if _, err := n.host.Start(g+1, servers); err != nil {
			return errors.Join(err, n.close())
		}
	}
	return nil
}

func (n *floorNode) close() error { return errors.Join(n.host.Close(), n.mux.Close(), n.wal.Close()) }

// settle waits until every group is led by the node whose turn it is, and hands over
// what this node leads out of turn.
func (n *floorNode) settle(ctx context.Context) error {
	for {
		settled := true
		for _, g := range n.host.Groups() {
			want := floorID(int(g.ID()) % len(n.spec.Peers))
			leader, _ := g.Leader()
			if leader == want && (want != floorID(n.spec.Index) || g.IsLeader()) {
				continue
			}
			settled = false
			if g.IsLeader() {
				// The outcome shows in the next round.
				_ = g.TransferLeadership(ctx, want)
			}
		}
		if settled {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case err := <-n.fatal:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// proposers are the load of this node. The operations of a batch go to the groups
// that the node leads, by the partitions of their keys.
func (n *floorNode) proposers() []worker {
	var led []uint32
	for g := range uint32(floorGroups) {
		if int(g+1)%len(n.spec.Peers) == n.spec.Index {
			led = append(led, g+1)
		}
	}
	workers := make([]worker, 0, n.spec.Proposers)
	value := benchValue(n.spec.ValueBytes)
	for i := range n.spec.Proposers {
		p := proposer{host: n.host, led: led, value: value, spec: &n.spec, name: "c" + strconv.Itoa(i) + "-"}
		workers = append(workers, p.propose)
	}
	return workers
}

// proposer is the floor's counterpart of a connection. For one goroutine.
type proposer struct {
	host  *raftnode.Host
	led   []uint32
	value []byte
	spec  *floorSpec
	name  string
	count int
}

// propose proposes one batch, split as the router splits it, and waits for all of it.
func (p *proposer) propose(ctx context.Context) (int, error) {
	parts := make([][]raftnode.Command, len(p.led))
	for range p.spec.Batch {
		p.count++
		key := p.name + strconv.Itoa(p.count%p.spec.Keys)
		i := placement.GroupOf(key, uint32(len(p.led))) - 1
		parts[i] = append(parts[i], command.EncodePut(command.Put{
			Map: "bench", Key: key,
			Record: protocol.Record{Value: p.value, Timestamp: protocol.Timestamp{Millis: int64(p.count), NodeID: "floor"}},
		}))
	}
	waiting := make([]raftnode.Proposal, 0, len(parts))
	for i, cmds := range parts {
		if len(cmds) == 0 {
			continue
		}
		proposal, err := p.host.Propose(p.led[i], cmds)
		if err != nil {
			return 0, errors.Join(errRefused, err)
		}
		waiting = append(waiting, proposal)
	}
	for _, proposal := range waiting {
		if _, err := proposal.Wait(ctx); err != nil {
			return 0, errors.Join(errRefused, err)
		}
	}
	return p.spec.Batch, nil
}

// emptyMachine is a state machine without state: it answers every command.
type emptyMachine struct {
	index, term atomic.Uint64
}

// Apply implements raftnode.StateMachine.
func (m *emptyMachine) Apply(entries []fsm.Entry) ([][]command.Result, error) {
	results := make([][]command.Result, len(entries))
	for i, e := range entries {
		if !e.Configuration {
			entry, err := command.DecodeEntry(e.Data)
			if err != nil {
				return nil, err
			}
			results[i] = make([]command.Result, len(entry.Commands))
		}
		m.index.Store(e.Index)
		m.term.Store(e.Term)
	}
	return results, nil
}

// Applied implements raftnode.StateMachine.
func (m *emptyMachine) Applied() (index, term uint64) { return m.index.Load(), m.term.Load() }

// Flushed implements raftnode.StateMachine: nothing ever is.
func (*emptyMachine) Flushed() storage.Mark { return storage.Mark{} }

// Digest implements raftnode.StateMachine.
func (m *emptyMachine) Digest() (index, digest uint64) { return m.index.Load(), 0 }

// ClockFloor implements raftnode.StateMachine.
func (*emptyMachine) ClockFloor() (millis, counter int64) { return 0, 0 }

// errStateless is the answer to whatever needs a state.
var errStateless = errors.New("the floor has no state")

// Checkpoint implements raftnode.StateMachine.
func (*emptyMachine) Checkpoint(context.Context, fsm.Position) error { return errStateless }

// OpenSnapshot implements raftnode.StateMachine.
func (*emptyMachine) OpenSnapshot() (*fsm.Snapshot, error) { return nil, errStateless }

// Restore implements raftnode.StateMachine.
func (*emptyMachine) Restore(io.Reader) error { return errStateless }

// Close implements raftnode.StateMachine.
func (*emptyMachine) Close() error { return nil }
