package raftnode

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestFollowersShowACommitWithoutWaitingForTheLibrary gives the library's own timer
// an hour.
func TestFollowersShowACommitWithoutWaitingForTheLibrary(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.cfg.CommitTimeout = time.Hour
		c.startAll()
		leader := c.leader()
		for i := range 20 {
			leader.mustWrite("k", string(rune('a'+i)))
			for _, n := range c.others(leader) {
				c.eventually(50*time.Millisecond, "the write on "+n.name, func() bool { return n.read("k") == string(rune('a'+i)) })
			}
		}
		c.noFatal()
	})
}

func TestNewsNeverGoBeyondWhatAFollowerAgreedWith(t *testing.T) {
	entries := func(term uint64, first, last uint64) (list []*raft.Log) {
		for i := first; i <= last; i++ {
			list = append(list, &raft.Log{Index: i, Term: term})
		}
		return list
	}
	var r reached
	if _, ok := r.news(10); ok {
		t.Error("news for a follower that has accepted nothing")
	}
	r = r.after("a", &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 4, PrevLogTerm: 2, Entries: entries(3, 5, 7), LeaderCommitIndex: 4})
	req, ok := r.news(9)
	if !ok || req.PrevLogEntry != 7 || req.PrevLogTerm != 3 || req.LeaderCommitIndex != 7 || len(req.Entries) != 0 {
		t.Errorf("news %+v, %v", req, ok)
	}
	r = r.after("a", req)
	if _, ok := r.news(9); ok {
		t.Error("news that the follower knows")
	}
	// An older answer that comes late does not take back what was told.
	r = r.after("a", &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 6, PrevLogTerm: 3, LeaderCommitIndex: 5})
	if _, ok := r.news(6); ok {
		t.Error("news below what was told")
	}
	// Nor does it take back what was agreed on.
	r = r.after("a", &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 3, Entries: entries(3, 8, 9), LeaderCommitIndex: 7})
	r = r.after("a", &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 3, LeaderCommitIndex: 7})
	if req, ok := r.news(9); !ok || req.PrevLogEntry != 9 || req.LeaderCommitIndex != 9 {
		t.Errorf("news %+v, %v after answers that crossed", req, ok)
	}
	r = r.after("a", &raft.AppendEntriesRequest{Term: 4, PrevLogEntry: 7, PrevLogTerm: 3, LeaderCommitIndex: 2})
	if req, ok := r.news(7); !ok || req.LeaderCommitIndex != 7 || req.Term != 4 {
		t.Errorf("news of a new term %+v, %v", req, ok)
	}
}
