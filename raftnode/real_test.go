package raftnode

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol/hlc"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux"
)

// emptyMachine counts commands and keeps nothing: what remains is the cost of
// agreeing.
type emptyMachine struct{ applied, term atomic.Uint64 }

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
		m.applied.Store(e.Index)
		m.term.Store(e.Term)
	}
	return results, nil
}

func (m *emptyMachine) Applied() (uint64, uint64)                      { return m.applied.Load(), m.term.Load() }
func (m *emptyMachine) Flushed() storage.Mark                          { return storage.Mark{} }
func (m *emptyMachine) Digest() (uint64, uint64)                       { return m.applied.Load(), 0 }
func (m *emptyMachine) ClockFloor() (int64, int64)                     { return 0, 0 }
func (m *emptyMachine) Checkpoint(context.Context, fsm.Position) error { return nil }
func (m *emptyMachine) OpenSnapshot() (*fsm.Snapshot, error)           { return nil, io.ErrUnexpectedEOF }
func (m *emptyMachine) Restore(io.Reader) error                        { return io.ErrUnexpectedEOF }
func (m *emptyMachine) Close() error                                   { return nil }

// realNode is a node on loopback TCP and files.
type realNode struct {
	mux  *mux.Mux
	log  *logstore.Log
	host *Host
}

func startReal(b testing.TB, count int) []*realNode {
	b.Helper()
	logger := hclog.NewNullLogger()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	nodes := make([]*realNode, count)
	var servers []raft.Server
	for i := range nodes {
		n := &realNode{}
		nodes[i] = n
		cfg := mux.DefaultConfig()
		cfg.NodeID, cfg.Incarnation, cfg.ListenAddr = fmt.Sprint("n", i), "1", "127.0.0.1:0"
		var err error
		n.mux, err = mux.Open(cfg, mux.Deps{Logger: logger})
		must(err)
		n.mux.Start()
		n.log, err = logstore.Open(logstore.DefaultConfig(filepath.Join(b.TempDir(), "wal")), logstore.Deps{Logger: logger})
		must(err)
		hostCfg := DefaultConfig()
		hostCfg.ID = n.mux.ID()
		n.host = NewHost(hostCfg, Deps{
			Logger: logger, Mux: n.mux, Log: n.log,
			Clock:      hlc.New(cfg.NodeID, func() int64 { return time.Now().UnixMilli() }),
			NewMachine: func(uint32) (StateMachine, error) { return &emptyMachine{}, nil },
			Fatal:      func(err error) { b.Errorf("fatal: %v", err) },
		})
		servers = append(servers, raft.Server{ID: n.mux.ID()})
	}
	for _, n := range nodes {
		for _, other := range nodes {
			n.mux.SetPeerAddr(other.mux.ID(), other.mux.Addr())
		}
	}
	b.Cleanup(func() {
		for _, n := range nodes {
			if err := n.host.Close(); err != nil {
				b.Error(err)
			}
			if err := n.log.Close(); err != nil {
				b.Error(err)
			}
			n.mux.Close()
		}
	})
	for _, n := range nodes {
		_, err := n.host.Start(testGroup, servers)
		must(err)
	}
	return nodes
}

func leaderOf(b testing.TB, nodes []*realNode) *Host {
	b.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for _, n := range nodes {
			if g, _ := n.host.Group(testGroup); g.IsLeader() {
				return n.host
			}
		}
	}
	b.Fatal("no leader")
	return nil
}

func TestNodesOnTCPAndFilesLeaveNoGoroutines(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	leader := leaderOf(t, startReal(t, 3))
	for range 20 {
		p, err := leader.Propose(testGroup, []Command{put("k", "v")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkPropose measures agreement over loopback TCP and files with proposals of
// ten commands of 100-byte values.
func BenchmarkPropose(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(8, 2*runtime.NumCPU())))
	for _, nodes := range []int{1, 3} {
		cluster := startReal(b, nodes)
		leader := leaderOf(b, cluster)
		for _, proposers := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("nodes=%d/proposers=%d", nodes, proposers), func(b *testing.B) {
				propose(b, leader, proposers)
			})
		}
	}
}

func propose(b *testing.B, leader *Host, proposers int) {
	const batch = 10
	cmds := make([]Command, batch)
	for i := range cmds {
		cmds[i] = Command{Kind: command.KindPut, Version: 1, Body: make([]byte, 130)}
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var running sync.WaitGroup
	for range proposers {
		running.Go(func() {
			for left.Add(-1) >= 0 {
				p, err := leader.Propose(testGroup, cmds)
				if err == nil {
					_, err = p.Wait(context.Background())
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkIdle reports the CPU that three idle nodes with seven groups take.
func BenchmarkIdle(b *testing.B) {
	nodes := startReal(b, 3)
	var servers []raft.Server
	for _, n := range nodes {
		servers = append(servers, raft.Server{ID: n.mux.ID()})
	}
	for id := uint32(0); id < 7; id++ {
		if id == testGroup {
			continue
		}
		for _, n := range nodes {
			if _, err := n.host.Start(id, servers); err != nil {
				b.Fatal(err)
			}
		}
	}
	time.Sleep(4 * time.Second)
	var before, after syscall.Rusage
	syscall.Getrusage(0, &before)
	start := time.Now()
	time.Sleep(8 * time.Second)
	syscall.Getrusage(0, &after)
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(100*cpu.Seconds()/time.Since(start).Seconds()/3, "%core/node")
}
