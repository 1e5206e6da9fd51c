package raftnode

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// minorityAnswers cuts the leader off, keeps writing to it, and returns an error if
// it acknowledges anything or calls an appended write not appended.
func minorityAnswers(c *cluster) error {
	c.startAll()
	old := c.leader()
	old.mustWrite("k", "before")
	c.net.Isolate(memnet.Blackhole, old.name)

	var waiting []Proposal
	for i := range 20 {
		p, err := old.host.Propose(testGroup, []Command{put(fmt.Sprint("lost", i), "v")})
		if err != nil {
			return fmt.Errorf("leader refuses before it can know: %w", err)
		}
		waiting = append(waiting, p)
		time.Sleep(time.Millisecond) // the entries fill one after the other
	}
	refused := 0
	for _, p := range waiting {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		results, err := p.Wait(ctx)
		cancel()
		switch {
		case err == nil:
			return fmt.Errorf("minority acknowledged %v", results)
		case errors.Is(err, ErrUnknown):
		default:
			refused++
		}
	}
	// Two entries were in flight; everything behind them was never appended.
	if refused == 0 {
		return errors.New("no write was recognised as not appended")
	}
	return nil
}

func TestEveryAnswerNamesItsClass(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		group := leader.group()

		if _, err := leader.host.Propose(99, []Command{put("k", "v")}); !errors.Is(err, ErrNotHere) {
			t.Errorf("unknown group: %v", err)
		}
		var notLeader *NotLeaderError
		_, err := c.others(leader)[0].host.Propose(testGroup, []Command{put("k", "v")})
		if !errors.As(err, &notLeader) || notLeader.Leader != leader.id || notLeader.Group != testGroup {
			t.Errorf("follower: %v", err)
		}
		huge := Command{Kind: 1, Version: 1, Body: make([]byte, c.cfg.MaxProposalBytes)}
		if _, err := group.Propose([]Command{huge}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("huge proposal: %v", err)
		}
		p, err := group.Propose(nil)
		c.must(err)
		if results, err := p.Wait(t.Context()); err != nil || len(results) != 0 {
			t.Errorf("empty proposal: %v, %v", results, err)
		}

		// A caller that gives up knows nothing.
		c.net.Isolate(memnet.Blackhole, leader.name)
		_, err = leader.write(10*time.Millisecond, "k", "v")
		if !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("deadline: %v", err)
		}
		c.net.Heal()
	})
}

func TestUnknownWritesMayStillAppear(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		leader := c.leader()
		leader.mustWrite("k", "before")
		// Followers get the entry and their answers do not arrive.
		for _, n := range c.others(leader) {
			c.net.Cut(memnet.Blackhole, n.name, leader.name)
		}
		if _, err := leader.write(15*time.Second, "k", "after"); !errors.Is(err, ErrUnknown) {
			t.Fatalf("answer without a quorum: %v", err)
		}
		c.net.Heal()
		c.leader().mustWrite("other", "v")
		c.converge()
		if got := leader.read("k"); got != "after" {
			t.Errorf("the entry that all nodes stored is gone: %q", got)
		}
	})
}
