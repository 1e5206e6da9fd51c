package raftnode

import (
	"sync"
	"time"

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
	mu   sync.Mutex // protects the fields below
	term uint64     // of the entries of byID
	byID map[ServerID]*link
}

// link is the state of the messages to one peer.
type link struct {
	Follower
	// up is closed when the next message succeeds. Nil while the link is not down.
	up chan struct{}
}

func newPeers() *peers { return &peers{byID: make(map[ServerID]*link)} }

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
func (p *peers) failed(id ServerID, term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.linkLocked(id, term); l != nil && l.up == nil {
		l.up = make(chan struct{})
	}
}

// answered notes an answer from a follower that has stored entries up to match;
// zero says nothing about its log.
func (p *peers) answered(id ServerID, term, match uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.linkLocked(id, term)
	if l == nil {
		return
	}
	l.Contact = time.Now()
	l.Match = max(l.Match, match)
	l.raise()
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
