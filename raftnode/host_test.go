package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/raftnode/mux/memnet"
)

func TestGroupsStartAndStopOnTheirOwn(t *testing.T) {
	simulate(t, 1, testSeed(t), func(t *testing.T, c *cluster) {
		n := c.nodes[0]
		n.boot()
		for _, id := range []uint32{5, 0, 2} {
			if _, err := n.host.Start(id, c.servers()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := n.host.Start(2, nil); !errors.Is(err, ErrRunning) {
			t.Errorf("second start: %v", err)
		}
		var ids []uint32
		for _, g := range n.host.Groups() {
			ids = append(ids, g.ID())
		}
		if !slices.Equal(ids, []uint32{0, 2, 5}) {
			t.Errorf("groups %v", ids)
		}
		g, _ := n.host.Group(2)
		c.eventually(5*time.Second, "a leader of group 2", g.IsLeader)
		p, err := n.host.Propose(2, []Command{put("k", "v")})
		c.must(err)
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.must(n.host.Stop(2, false))
		if _, err := n.host.Propose(2, []Command{put("k", "v")}); !errors.Is(err, ErrNotHere) {
			t.Errorf("proposal to a stopped group: %v", err)
		}
		if err := g.WaitApplied(t.Context(), 1000); !errors.Is(err, ErrClosed) {
			t.Errorf("wait in a stopped group: %v", err)
		}
		if err := g.Snapshot(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("snapshot of a stopped group: %v", err)
		}
		// It comes back with its data, unless it was dropped.
		g, err = n.host.Start(2, nil)
		c.must(err)
		c.eventually(5*time.Second, "the leader again", g.IsLeader)
		if s := g.Status(); s.AppliedIndex < 3 || s.Term < 3 {
			t.Errorf("came back as %+v", s)
		}
		c.must(n.host.Stop(2, true))
		c.must(n.host.Stop(2, true))
		if got := n.log.Groups(); !slices.Equal(got, []uint32{0, 5}) {
			t.Errorf("log has groups %v", got)
		}
		g, err = n.host.Start(2, nil)
		c.must(err)
		if s := g.Status(); s.AppliedIndex != 0 || s.LastLog != 0 {
			t.Errorf("dropped and yet %+v", s)
		}
		c.must(n.host.Close())
		c.must(n.host.Close())
		if _, err := n.host.Start(7, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("start after the end: %v", err)
		}
	})
}

func TestLeaderChangesAreAnnounced(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		for _, n := range c.nodes {
			synctest.Wait()
			select {
			case <-n.host.LeaderChanges():
			default:
				t.Errorf("%s announced nothing", n.name)
			}
		}
		leader.kill()
		n := c.nodes[slices.IndexFunc(c.nodes, func(n *node) bool { return n.running })]
		for deadline := time.After(10 * time.Second); ; {
			select {
			case <-n.host.LeaderChanges():
			case <-deadline:
				t.Fatal("the new leader was not announced")
			}
			if id, _ := n.group().Leader(); id != "" && id != leader.id {
				break
			}
		}
	})
}

// Whole clusters come back on other addresses: Raft knows servers, not addresses.
func TestClusterReturnsOnOtherAddresses(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		c.leader().mustWrite("k", "v")
		for i, n := range c.nodes {
			n.kill()
			n.addr = fmt.Sprintf("n%d:%d", i+1, 9000+i)
		}
		for _, n := range c.nodes {
			n.restart()
		}
		c.leader().mustWrite("k2", "v")
		c.converge()
		if c.nodes[0].read("k") != "v" {
			t.Error("lost the write")
		}
	})
}

func TestNewLeaderStampsAboveItsPredecessors(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		old := c.leader()
		// Its clock runs half a minute ahead of the others'.
		old.skew.Store(30_000)
		old.mustWrite("k", "old")
		c.converge()
		c.net.Isolate(memnet.Blackhole, old.name)
		next := c.leader(c.others(old)...)
		before, _ := next.machine().ClockFloor()
		next.mustWrite("other", "new")
		rec, _, err := next.machine().Get("m", "other")
		c.must(err)
		if rec.Timestamp.Millis < before || before < time.Now().UnixMilli()+20_000 {
			t.Errorf("stamped %d after %d", rec.Timestamp.Millis, before)
		}
	})
}

// Entries that leaders write for themselves count as applied without a command.
func TestFollowersPassEntriesWithoutEffect(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		last := leader.group().Status().LastLog
		if last < 3 {
			t.Fatalf("log ends at %d, expected a configuration, a no-op and a barrier", last)
		}
		for _, n := range c.nodes {
			c.must(n.group().WaitApplied(ctx, last))
			if got := n.group().Status().AppliedIndex; got != last {
				t.Errorf("%s applied %d of %d", n.name, got, last)
			}
		}
	})
}

func TestFailedApplierParksUntilTheGroupEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := &applier{machine: errMachine{}, ctx: ctx, fatal: func(error) {}}
		var responses []any
		go func() { responses = a.ApplyBatch([]*raft.Log{{Index: 5, Type: raft.LogCommand}}) }()
		synctest.Wait()
		if responses != nil {
			t.Fatal("the library may go on after a failure")
		}
		cancel()
		synctest.Wait()
		if err, ok := responses[0].(error); !ok || !errors.Is(err, errNotApplied) {
			t.Errorf("response %v", responses[0])
		}
	})
}

func TestMetricsShowEveryGroup(t *testing.T) {
	simulate(t, 1, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		n := c.leader()
		n.mustWrite("k", "v")
		registry := prometheus.NewPedanticRegistry()
		if err := registry.Register(n.host.metrics); err != nil {
			t.Fatal(err)
		}
		families, err := registry.Gather()
		c.must(err)
		values := make(map[string]float64)
		for _, f := range families {
			for _, m := range f.Metric {
				values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		for name, want := range map[string]float64{
			"quorate_raft_ready": 1, "quorate_raft_leader": 1, "quorate_raft_entry_commands": 1,
			"quorate_raft_elections_won_total": 1, "quorate_raft_log_stalled": 0,
			"quorate_raft_applied_index": float64(n.group().Status().AppliedIndex),
		} {
			if got, ok := values[name]; !ok || got != want {
				t.Errorf("%s is %v, want %v (known %v)", name, got, want, ok)
			}
		}
	})
}

func TestConfigurationReportsAllProblems(t *testing.T) {
	good := DefaultConfig()
	good.ID = "n1#1"
	if err := good.Validate(); err != nil {
		t.Fatalf("defaults: %v", err)
	}
	for problem, change := range map[string]func(*Config){
		"ID is empty":        func(c *Config) { c.ID = "" },
		"StallFatal":         func(c *Config) { c.StallFatal = c.ElectionTimeout },
		"RPCTimeout":         func(c *Config) { c.RPCTimeout = 0 },
		"SnapshotRate":       func(c *Config) { c.SnapshotRate = 0 },
		"MaxEntryOps":        func(c *Config) { c.MaxEntryOps = 0 },
		"MaxProposalBytes":   func(c *Config) { c.MaxProposalBytes = 1 },
		"InFlight":           func(c *Config) { c.InFlight = 0 },
		"QueueBytes":         func(c *Config) { c.QueueBytes = 1 },
		"TrailingLogs":       func(c *Config) { c.TrailingLogs = 2 },
		"LeaderLeaseTimeout": func(c *Config) { c.LeaderLeaseTimeout = 2 * c.HeartbeatTimeout },
	} {
		bad := good
		change(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", problem, err)
		}
	}
	var none Config
	if err := none.Validate(); strings.Count(err.Error(), "\n") < 5 {
		t.Errorf("only %v", err)
	}
}
