package raftnode

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// linkWait is how long a message waits for a link that is down to come back.
const linkWait = 5 * time.Second

// Follower is what a leader knows about one of its followers.
type Follower struct {
	ID ServerID
	// Match is the last entry that the follower is known to have stored in this
	// term. Zero until it took one.
	Match uint64
	// Contact is when the follower last answered in this term. Zero: not yet.
	Contact time.Time
}

// peers follows the progress of a leader's followers from the answers to its
// messages, because the library keeps that to itself.
type peers struct {
	logger hclog.Logger

	mu   sync.Mutex // protects the fields below
	term uint64     // of the entries of byID
	byID map[ServerID]*link
}

// link is the state of the messages to one peer.
type link struct {
	Follower
	// up is closed when the next message succeeds. Nil while the link is not down.
	up chan struct{}
	// told is what the follower last accepted in a message without entries, and when.
	told told
	// reached is how far the follower agrees. informing is set while it is told of more.
	reached   reached
	informing bool
}

// told is what a message without entries says: where the log ends and up to where it
// is committed.
type told struct {
	prev, commit uint64
	at           time.Time
}

func newPeers(logger hclog.Logger) *peers {
	return &peers{logger: logger, byID: make(map[ServerID]*link)}
}

// linkLocked returns the link to id in term, a new one in a new term. It returns
// nil for a term that is over.
func (p *peers) linkLocked(id ServerID, term uint64) *link {
	if term < p.term {
		return nil
	}
	if term > p.term {
		for _, l := range p.byID {
			l.raise()
		}
		p.term = term
		clear(p.byID)
	}
	l := p.byID[id]
	if l == nil {
		l = &link{Follower: Follower{ID: id}}
		p.byID[id] = l
	}
	return l
}

// await blocks while the link is down, but not longer than linkWait or until stop
// is closed. The library doubles its pause with every failure, to ten seconds;
// waiting here makes failures rare, so a peer that returns is served at once.
func (p *peers) await(id ServerID, term uint64, stop <-chan struct{}) {
	p.mu.Lock()
	var up chan struct{}
	if l := p.linkLocked(id, term); l != nil {
		up = l.up
	}
	p.mu.Unlock()
	if up == nil {
		return
	}
	timer := time.NewTimer(linkWait)
	defer timer.Stop()
	select {
	case <-up:
	case <-timer.C:
	case <-stop:
	}
}

// failed notes a message that was not answered.
func (p *peers) failed(id ServerID, term uint64, err error) {
	p.mu.Lock()
	l := p.linkLocked(id, term)
	first := l != nil && l.up == nil
	if first {
		l.up = make(chan struct{})
		l.told = told{}
	}
	p.mu.Unlock()
	if first {
		p.logger.Warn("follower does not answer", "node", id, "term", term, "err", err)
	}
}

// answered notes an answer that says nothing about the follower's log.
func (p *peers) answered(id ServerID, term uint64) {
	p.note(id, term, func(*link) {})
}

// stored notes that a follower has stored entries up to match.
func (p *peers) stored(id ServerID, term, match uint64) {
	p.note(id, term, func(l *link) { l.Match = max(l.Match, match) })
}

// accepted notes that a follower took req.
func (p *peers) accepted(id ServerID, target raft.ServerAddress, req *raft.AppendEntriesRequest) {
	p.note(id, req.Term, func(l *link) {
		l.Match = max(l.Match, appended(req))
		l.reached = l.reached.after(target, req)
		if len(req.Entries) == 0 {
			l.told = told{prev: req.PrevLogEntry, commit: req.LeaderCommitIndex, at: time.Now()}
		}
	})
}

// note takes an answer of this moment in.
func (p *peers) note(id ServerID, term uint64, change func(l *link)) {
	p.mu.Lock()
	l := p.linkLocked(id, term)
	back := false
	if l != nil {
		l.Contact = time.Now()
		back = l.up != nil
		l.raise()
		change(l)
	}
	p.mu.Unlock()
	if back {
		p.logger.Info("follower answers again", "node", id, "term", term)
	}
}

// repeats reports whether req says nothing that the follower did not accept before,
// on a link that carried an answer within the given time. A failed link forgets what
// was accepted: the follower may have started anew. What was accepted longer ago than
// five times that is said again, whatever the link looks like.
func (p *peers) repeats(id ServerID, req *raft.AppendEntriesRequest, within time.Duration) bool {
	if len(req.Entries) > 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.byID[id]
	return l != nil && req.Term == p.term && l.up == nil &&
		l.told.prev == req.PrevLogEntry && l.told.commit == req.LeaderCommitIndex &&
		time.Since(l.Contact) < within && time.Since(l.told.at) < 5*within
}

// raise lets the messages go that wait for the link.
func (l *link) raise() {
	if l.up != nil {
		close(l.up)
		l.up = nil
	}
}

// follower returns what is known of id in term.
func (p *peers) follower(id ServerID, term uint64) (Follower, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.byID[id]
	if l == nil || p.term != term {
		return Follower{ID: id}, false
	}
	return l.Follower, true
}

// appended is the index up to which a follower that accepted req agrees with it.
func appended(req *raft.AppendEntriesRequest) uint64 {
	if n := len(req.Entries); n > 0 {
		return req.Entries[n-1].Index
	}
	return req.PrevLogEntry
}
