package raftnode

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/raftnode/logstore"
)

func TestLeaderWithAHangingLogIsReplaced(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		old := c.leader()
		old.mustWrite("k", "before")
		release := old.fs.StallSync()
		p, err := old.host.Propose(testGroup, []Command{put("k", "hanging")})
		c.must(err)
		start := time.Now()
		next := c.leader(c.others(old)...)
		if took := time.Since(start); took > 8*time.Second {
			t.Errorf("takeover took %s", took)
		}
		if old.group().IsLeader() {
			t.Error("a node with a hanging log says that it leads")
		}
		next.mustWrite("k", "after")
		release()
		if _, err := p.Wait(t.Context()); !errors.Is(err, ErrUnknown) {
			t.Errorf("hanging write: %v", err)
		}
		c.converge()
		if got := old.read("k"); got != "after" {
			t.Errorf("old leader has %q", got)
		}
		c.noFatal()
	})
}

func TestLogThatHangsForeverEndsTheNode(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		leader.fs.StallSync()
		if _, err := leader.host.Propose(testGroup, []Command{put("k", "v")}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err := <-leader.fatal
		if took := time.Since(start); took < c.cfg.StallFatal || took > c.cfg.StallFatal+5*time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}

func TestFailedLogEndsTheNodeAndNothingIsAcknowledged(t *testing.T) {
	for _, op := range []logstore.Op{logstore.OpWrite, logstore.OpSync} {
		t.Run(string(op), func(t *testing.T) {
			simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
				c.startAll()
				leader := c.leader()
				leader.mustWrite("k", "before")
				leader.fs.FailNext(op, errors.New("injected"))
				_, err := leader.write(10*time.Second, "k", "after")
				if !errors.Is(err, ErrUnknown) {
					t.Errorf("write on a failed log: %v", err)
				}
				if err := <-leader.fatal; !errors.Is(err, logstore.ErrFailed) {
					t.Errorf("fatal: %v", err)
				}
				// The process would be gone by now.
				next := c.leader(c.others(leader)...)
				next.mustWrite("k", "next")
				leader.kill()
				leader.restart()
				c.converge()
			})
		})
	}
}

// A follower's log fails in the library's main loop, where the library would panic.
func TestFailedLogOfAFollowerEndsOnlyThatNode(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		leader.mustWrite("k", "v1")
		follower := c.others(leader)[0]
		follower.fs.FailNext(logstore.OpSync, errors.New("injected"))
		leader.mustWrite("k", "v2")
		if err := <-follower.fatal; !errors.Is(err, logstore.ErrFailed) {
			t.Errorf("fatal: %v", err)
		}
		follower.kill()
		follower.restart()
		c.converge()
	})
}

func TestUnknownCommandStopsTheGroupBeforeItsIndex(t *testing.T) {
	simulate(t, 1, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		n := c.leader()
		before := n.mustWrite("k", "v")
		p, err := n.host.Propose(testGroup, []Command{{Kind: 77, Version: 1}})
		c.must(err)
		if err := <-n.fatal; !errors.Is(err, fsm.ErrUnknownKind) {
			t.Errorf("fatal: %v", err)
		}
		if s := n.group().Status(); s.AppliedIndex != before || s.CommitIndex <= before {
			t.Errorf("applied %d, committed %d, last good entry %d", s.AppliedIndex, s.CommitIndex, before)
		}
		if _, err := n.host.Propose(testGroup, []Command{put("k", "v")}); !isNotLeader(err) {
			t.Errorf("proposal to a failed node: %v", err)
		}
		n.kill()
		if _, err := p.Wait(t.Context()); !errors.Is(err, ErrUnknown) {
			t.Errorf("the entry that was not applied: %v", err)
		}
	})
}

// errMachine fails as told.
type errMachine struct {
	StateMachine
	results [][]command.Result
}

func (m errMachine) Apply([]fsm.Entry) ([][]command.Result, error) { return m.results, nil }

func TestMachineThatMiscountsResultsIsFatal(t *testing.T) {
	var fatal error
	a := &applier{machine: errMachine{}, fatal: func(err error) { fatal = err }}
	if _, err := a.apply([]*raft.Log{{Index: 5, Type: raft.LogCommand}}); err == nil || fatal == nil {
		t.Errorf("apply: %v, fatal: %v", err, fatal)
	}
	if a.applied.load() != 0 {
		t.Error("the applied index moved")
	}
}
