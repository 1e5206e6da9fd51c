package raftnode

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// self is the replica of scriptedFacts.
const self = "me"

// scriptedFacts is a library that goes on between two reads of its facts.
type scriptedFacts struct {
	script []func(*scriptedFacts)
	// pauses says how many steps happen before each read; all are 0 behind its end.
	pauses []int
	term   uint64
	role   raft.RaftState
	leader ServerID
}

func (f *scriptedFacts) tick() {
	if len(f.pauses) == 0 {
		return
	}
	for range min(f.pauses[0], len(f.script)) {
		f.script[0](f)
		f.script = f.script[1:]
	}
	f.pauses = f.pauses[1:]
}

func (f *scriptedFacts) CurrentTerm() uint64 { f.tick(); return f.term }

func (f *scriptedFacts) State() raft.RaftState { f.tick(); return f.role }

func (f *scriptedFacts) LeaderWithID() (raft.ServerAddress, raft.ServerID) {
	f.tick()
	return raft.ServerAddress(f.leader), f.leader
}

// libraryScript is what the library does, in its order: it follows the leader of term
// 5, stands for and wins term 6, is deposed by that of term 7, stands for term 8 by a
// transfer, in which another wins before it gives up, and stands for term 9.
func libraryScript() []func(*scriptedFacts) {
	role := func(r raft.RaftState) []func(*scriptedFacts) {
		return []func(*scriptedFacts){
			func(f *scriptedFacts) { f.leader = "" },
			func(f *scriptedFacts) { f.role = r },
		}
	}
	term := func(t uint64) func(*scriptedFacts) { return func(f *scriptedFacts) { f.term = t } }
	leader := func(id ServerID) func(*scriptedFacts) { return func(f *scriptedFacts) { f.leader = id } }
	var script []func(*scriptedFacts)
	add := func(steps ...func(*scriptedFacts)) { script = append(script, steps...) }
	add(role(raft.Candidate)...)
	add(term(6))
	add(role(raft.Leader)...)
	add(leader(self))
	add(role(raft.Follower)...)
	add(term(7), leader("leader of 7"))
	add(role(raft.Candidate)...)
	// A candidate by transfer keeps its role when it hears of another leader.
	add(term(8), leader("leader of 8"), term(9))
	return script
}

// TestLeadershipIsOneObservation lets the library go on by 0 to 3 steps between any two
// reads: no leader and no role may be paired with a term that is not theirs.
func TestLeadershipIsOneObservation(t *testing.T) {
	leaders := map[uint64]ServerID{5: "leader of 5", 6: self, 7: "leader of 7"}
	const reads = 8
	observations := map[string]bool{}
	for choice := range 1 << (2 * reads) {
		f := &scriptedFacts{script: libraryScript(), term: 5, role: raft.Follower, leader: "leader of 5"}
		for i := range reads {
			f.pauses = append(f.pauses, choice>>(2*i)&3)
		}
		got := observe(f)
		observations[fmt.Sprint(got)] = true
		if got.Leader != "" && got.Leader != leaders[got.Term] || got.Role == raft.Leader && got.Term != 6 {
			t.Fatalf("pauses %b: %+v", choice, got)
		}
	}
	if len(observations) < 6 {
		t.Errorf("only %v were seen", observations)
	}
}

// TestAReplicaLeadsInItsOwnTermOnly asks a leader that is deposed for the term in which
// it leads, at every moment.
func TestAReplicaLeadsInItsOwnTermOnly(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		old := c.leader()
		term, leads := old.group().Leads()
		if l := old.group().Leadership(); !leads || l.Role != raft.Leader || l.Term != term || l.Leader != old.id {
			t.Fatalf("the leader of term %d says %+v", term, l)
		}
		to := c.others(old)[0]
		c.eventually(10*time.Second, "a transfer", func() bool {
			return old.group().TransferLeadership(context.Background(), to.id) == nil
		})
		c.eventually(10*time.Second, "news of the next leader", func() bool {
			if now, leads := old.group().Leads(); leads {
				t.Errorf("still leads, in term %d", now)
			}
			l := old.group().Leadership()
			return l.Term > term && l.Leader != "" && l.Leader != old.id && l.Role == raft.Follower
		})
		s := old.group().Status()
		if s.Ready || s.Role != raft.Follower || s.Term <= term {
			t.Errorf("status %+v", s)
		}
	})
}
