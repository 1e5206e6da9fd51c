package raftnode

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/protocol/hlc"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// raised is what the tests raise the tokens by.
const raised = 1 << 32

// survey opens the disk of a node that does not run.
func (n *node) survey(t *testing.T) (s *Survivor, machine *fsm.Machine, end func()) {
	t.Helper()
	logger := hclog.NewNullLogger()
	log, err := logstore.Open(logstore.MemConfig("wal"), logstore.Deps{Logger: logger, FS: n.fs})
	n.c.must(err)
	flusher, err := writebehind.New(writebehind.DefaultConfig(), writebehind.Deps{Logger: logger, Store: n.store})
	n.c.must(err)
	machine, err = fsm.Open(fsm.DefaultConfig(testGroup), fsm.Deps{Logger: logger, Store: n.store, Flusher: flusher})
	n.c.must(err)
	s, err = Survey(testGroup, log.Group(testGroup), machine, logger)
	n.c.must(err)
	return s, machine, func() {
		n.c.must(machine.Close())
		_ = log.Close() // it may have been made to fail
	}
}

// alone rewrites the group of a node that does not run.
func (n *node) alone(t *testing.T) error {
	s, _, end := n.survey(t)
	defer end()
	clock := hlc.New(n.name, func() int64 { return time.Now().UnixMilli() })
	return s.GoOnAlone(n.id, clock, []Command{command.EncodeRaiseTokens(command.RaiseTokens{By: raised})})
}

// takeLock asks for a lock and releases it, and returns the token.
func (n *node) takeLock(t *testing.T, id uint64) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req := command.LockRequest{Name: "l", Request: lock.Request{Session: lock.Session{Gateway: n.name, Number: id}, ID: id}}
	p, err := n.group().Propose([]Command{command.EncodeLockRequest(command.KindLock, req)})
	n.c.must(err)
	results, err := p.Wait(ctx)
	n.c.must(err)
	r := codec.NewReader(results[0].Value)
	outcome := lock.ReadOutcome(&r)
	n.c.must(r.End())
	if outcome.State != lock.Granted {
		t.Fatalf("lock: %+v", outcome)
	}
	p, err = n.group().Propose([]Command{command.EncodeLockToken(command.KindUnlock, command.LockToken{Name: "l", Token: outcome.Token})})
	n.c.must(err)
	_, err = p.Wait(ctx)
	n.c.must(err)
	return outcome.Token
}

// TestASurvivorThatLagsGoesOnAlone loses the two nodes that know more than the third: what
// it has stays, and no token is given twice.
func TestASurvivorThatLagsGoesOnAlone(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		survivor := c.others(leader)[0]
		known := leader.takeLock(t, 1)
		leader.fill("known", 300)
		last := leader.mustWrite("k", "known")
		c.must(survivor.group().WaitApplied(t.Context(), last))
		c.net.Isolate(memnet.Blackhole, survivor.name)
		leader.mustWrite("k", "lost")
		lost := leader.takeLock(t, 2)
		if lost <= known {
			t.Fatalf("token %d after %d", lost, known)
		}
		for _, n := range c.nodes {
			n.kill()
		}
		c.net.Heal()

		s, machine, end := survivor.survey(t)
		r := s.Remains()
		if !r.Held() || r.LastIndex < last || r.CommitIndex > r.LastIndex || r.LastAt.IsZero() || len(r.Voters) != 3 || r.Term == 0 {
			t.Errorf("remains %+v", r)
		}
		if got := machine.GreatestToken(); got != known {
			t.Errorf("the survivor knows token %d, not %d", got, known)
		}
		end()
		c.must(survivor.alone(t))
		survivor.restart()
		c.leader(survivor)
		if got := survivor.read("k"); got != "known" {
			t.Errorf("k is %q", got)
		}
		if v := survivor.group().Status().Voters; !slices.Equal(v, []ServerID{survivor.id}) {
			t.Errorf("voters %v", v)
		}
		if token := survivor.takeLock(t, 3); token <= lost || token != known+raised+1 {
			t.Errorf("token %d after %d, which was lost", token, lost)
		}
		survivor.mustWrite("k", "alone")
		survivor.restartAlone()
		if got := survivor.read("k"); got != "alone" {
			t.Errorf("k is %q after a restart", got)
		}
		c.noFatal()
	})
}

// restartAlone kills the node and has it lead again.
func (n *node) restartAlone() {
	n.kill()
	n.restart()
	n.c.leader(n)
}

// TestGoingOnAloneCanBeRepeated fails and repeats the rewriting: what the node has stays.
func TestGoingOnAloneCanBeRepeated(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		survivor := c.others(leader)[0]
		last := leader.mustWrite("k", "v")
		c.must(survivor.group().WaitApplied(t.Context(), last))
		for _, n := range c.nodes {
			n.kill()
		}
		for _, op := range []logstore.Op{logstore.OpWrite, logstore.OpSync} {
			s, _, end := survivor.survey(t)
			survivor.fs.FailNext(op, errors.New("injected"))
			if err := s.GoOnAlone(survivor.id, hlc.New(survivor.name, func() int64 { return 1 }), nil); err == nil {
				t.Errorf("no error of a failed %v", op)
			}
			survivor.fs.FailNext(op, nil)
			survivor.fs.CrashTorn(uint64(last))
			end()
		}
		c.must(survivor.alone(t))
		c.must(survivor.alone(t))
		survivor.restart()
		c.leader(survivor)
		if got := survivor.read("k"); got != "v" {
			t.Errorf("k is %q", got)
		}
		if token := survivor.takeLock(t, 1); token != 2*raised+1 {
			t.Errorf("token %d", token)
		}
		c.noFatal()
	})
}

// TestAGroupWithoutAnythingBeginsAnew has a node begin a group that it does not hold.
func TestAGroupWithoutAnythingBeginsAnew(t *testing.T) {
	simulate(t, 1, testSeed(t), func(t *testing.T, c *cluster) {
		n := c.nodes[0]
		s, _, end := n.survey(t)
		if r := s.Remains(); r.Held() {
			t.Errorf("remains %+v", r)
		}
		end()
		c.must(n.alone(t))
		n.restart()
		c.leader(n)
		if token := n.takeLock(t, 1); token != raised+1 {
			t.Errorf("token %d", token)
		}
	})
}

// TestASurveyChangesNothing compares what two surveys in a row see.
func TestASurveyChangesNothing(t *testing.T) {
	simulate(t, 1, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		n := c.leader()
		n.fill("k", 50)
		n.kill()
		s, first, end := n.survey(t)
		before := s.Remains()
		_, digest := first.Digest()
		end()
		s, second, end := n.survey(t)
		defer end()
		after := s.Remains()
		_, again := second.Digest()
		if digest != again || before.LastIndex != after.LastIndex || before.FlushedIndex != after.FlushedIndex || before.Term != after.Term {
			t.Errorf("%+v, %x, then %+v, %x", before, digest, after, again)
		}
	})
}
