package raftnode

import (
	"time"

	"github.com/hashicorp/raft"
)

// Status is one replica's view of its group at one moment. Its parts are read one
// after the other and may be a few entries apart.
type Status struct {
	Group uint32
	// Leadership is one observation, and Ready belongs to it: the replica leads the
	// term and accepts proposals.
	Leadership
	Ready bool
	// CommitIndex is the last entry known to be committed, AppliedIndex the last one
	// in the state, FlushedIndex the last one in the durable state.
	CommitIndex, AppliedIndex, FlushedIndex uint64
	// FirstLog and LastLog bound the log; both are zero when it is empty.
	FirstLog, LastLog uint64
	// Digest is the checksum of the state at DigestIndex.
	DigestIndex, Digest uint64
	// Voters and Nonvoters are the members of the last applied configuration, which
	// the entry ConfigurationIndex set.
	Voters, Nonvoters  []ServerID
	ConfigurationIndex uint64
	// LastContact is when a follower last heard from its leader. Zero: never, in
	// this life of the process.
	LastContact time.Time
	// Followers is what a leader knows of the others. Empty elsewhere.
	Followers []Follower
}

// Status reads the state of the replica.
func (g *Group) Status() Status {
	in := g.instance()
	s := Status{
		Group:        g.id,
		Leadership:   in.leadership(),
		CommitIndex:  in.raft.CommitIndex(),
		AppliedIndex: g.raiseApplied(),
		FlushedIndex: g.machine.Flushed().Index,
		LastContact:  in.raft.LastContact(),
	}
	term, leads := g.Leads()
	s.Ready = leads && term == s.Term
	s.DigestIndex, s.Digest = g.machine.Digest()
	// A failed log has no bounds to report; that it failed is told elsewhere.
	s.FirstLog, _ = g.log.FirstIndex()
	s.LastLog, _ = g.log.LastIndex()
	conf := g.applier.current.Load()
	s.ConfigurationIndex = conf.index
	for _, server := range conf.servers {
		if server.Suffrage == raft.Voter {
			s.Voters = append(s.Voters, server.ID)
		} else {
			s.Nonvoters = append(s.Nonvoters, server.ID)
		}
	}
	if s.Role == raft.Leader {
		s.Followers = g.followers(in, conf, s.Term)
	}
	return s
}

func (g *Group) followers(in *instance, conf *configuration, term uint64) []Follower {
	list := make([]Follower, 0, len(conf.servers))
	for _, server := range conf.servers {
		if server.ID != g.host.cfg.ID {
			f, _ := in.transport.peers.follower(server.ID, term)
			list = append(list, f)
		}
	}
	return list
}

// find reports whether id votes in the configuration, and whether it belongs to it.
func (c *configuration) find(id ServerID) (voter, member bool) {
	for _, server := range c.servers {
		if server.ID == id {
			return server.Suffrage == raft.Voter, true
		}
	}
	return false, false
}

// voters is the number of voters.
func (c *configuration) voters() int {
	n := 0
	for _, server := range c.servers {
		if server.Suffrage == raft.Voter {
			n++
		}
	}
	return n
}
