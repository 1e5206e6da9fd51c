package raftnode

import "github.com/hashicorp/raft"

// Leadership is who leads a group as one replica knows it. Its parts belong together.
type Leadership struct {
	Term uint64
	// Role is Follower, Candidate, Leader or Shutdown: that of this replica in Term.
	Role raft.RaftState
	// Leader is the leader of Term, empty if none is known.
	Leader ServerID
}

// leaderFacts is what the library tells about leadership, one fact at a time.
type leaderFacts interface {
	CurrentTerm() uint64
	State() raft.RaftState
	LeaderWithID() (raft.ServerAddress, raft.ServerID)
}

// observe reads the library's facts until they belong together. The library gives a
// role up before it changes the term and takes the next one afterwards, so a role that
// is read between two equal terms is that of the term. Every change of the role clears
// the leader, so a leader that is read between two equal roles is that of the role;
// only a candidate may keep the leader of an earlier term, and knows none of its own.
func observe(facts leaderFacts) Leadership {
	for {
		l := Leadership{Term: facts.CurrentTerm(), Role: facts.State()}
		_, l.Leader = facts.LeaderWithID()
		if facts.State() != l.Role || facts.CurrentTerm() != l.Term {
			continue
		}
		if l.Role == raft.Candidate {
			l.Leader = ""
		}
		return l
	}
}

// Leadership returns who leads the group as known here, as one observation: a leader
// and a term of two separate reads may be of different terms.
func (g *Group) Leadership() Leadership { return g.instance().leadership() }

// Leader returns the leader and the term of Leadership.
func (g *Group) Leader() (id ServerID, term uint64) {
	l := g.Leadership()
	return l.Leader, l.Term
}

// Leads reports whether this replica accepts proposals, and in which term: it leads
// the term, everything before that term is applied here, its clock is past all stamps
// of the log, and its log is not stalled. The answer may be outdated at once.
func (g *Group) Leads() (term uint64, leads bool) {
	in := g.instance()
	term, leads = in.leads()
	if !leads || term != g.ready.Load() || in.transferring.Load() || g.host.fenced() != nil {
		return 0, false
	}
	return term, true
}

// IsLeader reports whether this replica accepts proposals: see Leads.
func (g *Group) IsLeader() bool {
	_, leads := g.Leads()
	return leads
}
