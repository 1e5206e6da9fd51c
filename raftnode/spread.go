package raftnode

import (
	"time"

	"github.com/hashicorp/raft"
)

// spreadPause is how long the next entries may take before followers are told by a
// message of its own how far the log is committed. Under load they never are.
const spreadPause = 5 * time.Millisecond

// reached is how far a follower is known to agree with the leader's log in a term:
// the header of a message without entries that says so.
type reached struct {
	target raft.ServerAddress
	// request is that message; its LeaderCommitIndex is what the follower was told.
	request raft.AppendEntriesRequest
}

// after is r after the follower accepted req.
func (r reached) after(target raft.ServerAddress, req *raft.AppendEntriesRequest) reached {
	told := req.LeaderCommitIndex
	if req.Term == r.request.Term {
		told = max(told, r.request.LeaderCommitIndex)
	}
	next := *req
	next.Entries, next.LeaderCommitIndex = nil, told
	if n := len(req.Entries); n > 0 {
		next.PrevLogEntry, next.PrevLogTerm = req.Entries[n-1].Index, req.Entries[n-1].Term
	}
	if last := &r.request; last.Term == next.Term && last.PrevLogEntry > next.PrevLogEntry {
		// The answer to an earlier message came later; what was agreed on stays agreed.
		next.PrevLogEntry, next.PrevLogTerm = last.PrevLogEntry, last.PrevLogTerm
	}
	return reached{target: target, request: next}
}

// news is the message that tells the follower of commit, if it says something new. It
// never goes beyond what the follower is known to agree with.
func (r reached) news(commit uint64) (req *raft.AppendEntriesRequest, ok bool) {
	next := r.request
	next.LeaderCommitIndex = min(commit, next.PrevLogEntry)
	return &next, next.LeaderCommitIndex > r.request.LeaderCommitIndex
}

// spread tells followers what was committed when no further entries do it, until the
// instance ends: what they show lags by a round trip then. The library itself only
// looks every CommitTimeout, which costs an idle cluster more than all else.
func (g *Group) spread(in *instance) {
	for {
		select {
		case <-in.progress:
		case <-in.stop:
			return
		}
		select {
		case <-time.After(spreadPause):
		case <-in.stop:
			return
		}
		term, leads := in.leads()
		if !leads {
			continue
		}
		commit := in.raft.CommitIndex()
		for id, r := range in.transport.peers.uninformed(term, commit) {
			// One message to a follower at a time; more would say the same.
			in.spawn(func() {
				req, _ := r.news(commit)
				// A failure shows where the library's own messages go.
				err := in.transport.AppendEntries(id, r.target, req, &raft.AppendEntriesResponse{})
				in.transport.peers.informed(id)
				if err == nil {
					in.noteProgress() // more may have been committed meanwhile
				}
			})
		}
	}
}

// uninformed returns the followers of term that were not told of commit, and marks
// them as being told.
func (p *peers) uninformed(term, commit uint64) map[ServerID]reached {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list map[ServerID]reached
	for id, l := range p.byID {
		if _, news := l.reached.news(commit); !news || p.term != term || l.up != nil || l.informing {
			continue
		}
		if list == nil {
			list = map[ServerID]reached{}
		}
		l.informing = true
		list[id] = l.reached
	}
	return list
}

// informed takes the mark of uninformed back.
func (p *peers) informed(id ServerID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.byID[id]; l != nil {
		l.informing = false
	}
}
