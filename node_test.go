package quorate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// simNode is a node in memory, inside a synctest bubble.
type simNode struct {
	*quorate.Node
	disk *logstore.MemFS
	stop context.CancelFunc
	ran  chan error
}

func startNode(t *testing.T, network *memnet.Network, id string, seeds ...string) *simNode {
	t.Helper()
	cfg := quorate.DefaultNodeConfig(id)
	cfg.Mux.ListenAddr, cfg.Mux.Advertise = id+":7000", id
	cfg.Membership.Seeds = seeds
	n := &simNode{disk: logstore.NewMemFS(), ran: make(chan error, 1)}
	var err error
	n.Node, err = quorate.OpenNode(cfg, quorate.NodeDeps{
		Logger: hclog.NewNullLogger(), Network: network.Host(id), LogFS: n.disk,
		Store:    memory.New(memory.Config{Durable: true}),
		Physical: func() int64 { return time.Now().UnixMilli() },
	})
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, n.stop = context.WithCancel(t.Context())
	go func() { n.ran <- n.Run(ctx) }()
	return n
}

// end stops the node and returns what Run returned.
func (n *simNode) end(t *testing.T) error {
	t.Helper()
	n.stop()
	err := <-n.ran
	if closeErr := n.Close(t.Context()); err == nil && closeErr != nil {
		t.Error(closeErr)
	}
	return err
}

func (n *simNode) awaitCaughtUp(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !n.CaughtUp(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", n.Status())
		}
	}
}

func (n *simNode) write(ctx context.Context, key string) (partitions.Verdict, error) {
	verdicts, err := n.Router().Write(ctx, n.Router().NewSession(), []partitions.Op{
		{Map: "m", Key: key, Record: protocol.Record{Value: msgp.AppendString(nil, "v")}},
	})
	if err != nil {
		return partitions.Verdict{}, err
	}
	return verdicts[0], nil
}

func TestNodeEndsWhenItsLogFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, memnet.New(1), "n1")
		n.awaitCaughtUp(t)
		if v, err := n.write(t.Context(), "k"); err != nil || v.Level != protocol.LevelPersisted {
			t.Fatalf("write: %+v, %v", v, err)
		}
		n.disk.FailNext(logstore.OpSync, errors.New("input/output error"))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if v, err := n.write(ctx, "k"); err == nil {
			t.Errorf("acknowledged %+v without a sync", v)
		}
		if err := <-n.ran; !errors.Is(err, quorate.ErrStorageFailed) {
			t.Errorf("Run returned %v", err)
		}
		n.stop()
		// The final flush may fail; what matters is that everything ends.
		_ = n.Close(t.Context())
	})
}

func TestNodeLeavesAndRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(1)
		first := startNode(t, network, "n1")
		first.awaitCaughtUp(t)
		if err := first.Leave(t.Context()); err == nil {
			t.Error("the last member left")
		}
		second := startNode(t, network, "n2", "n1:7000")
		second.awaitCaughtUp(t)
		for len(first.Status().Groups[1].Voters) < 2 || first.Status().Members[1].Status != "active" {
			time.Sleep(10 * time.Millisecond)
		}
		if err := second.Leave(t.Context()); err != nil {
			t.Errorf("leave: %v", err)
		}
		if err := <-second.ran; err != nil {
			t.Errorf("Run of the node that left returned %v", err)
		}
		second.stop()
		if err := second.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := first.write(t.Context(), "k"); err != nil {
			t.Errorf("write after the other node left: %v", err)
		}
		if err := first.end(t); err != nil {
			t.Error(err)
		}
	})
}

func TestStatusShowsTheClusterOfTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(1)
		nodes := []*simNode{startNode(t, network, "n1"), startNode(t, network, "n2", "n1:7000")}
		for _, n := range nodes {
			n.awaitCaughtUp(t)
		}
		s := nodes[1].Status()
		if s.ClusterID == "" || s.ClusterID != nodes[0].Status().ClusterID || len(s.Groups) != 7 || len(s.Members) != 2 {
			t.Errorf("%+v", s)
		}
		for _, g := range s.Groups {
			if g.Leader == "" || g.Term == 0 || g.CommitIndex == 0 || len(g.Digest) != 16 || g.Role == "" {
				t.Errorf("%+v", g)
			}
		}
		for _, n := range nodes {
			if err := n.end(t); err != nil {
				t.Error(err)
			}
		}
	})
}
