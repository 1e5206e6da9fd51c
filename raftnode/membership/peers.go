package membership

import (
	"maps"
	"sync"
	"time"

	"github.com/quorate/quorate/raftnode"
)

// peerBook holds what the other members said about themselves last. It is safe for
// concurrent use.
type peerBook struct {
	// detector counts a peer as heard of also when another member has heard of it.
	detector *detector
	// hearsay is the greatest silence that another member may report.
	hearsay time.Duration

	mu    sync.Mutex // protects peers
	peers map[raftnode.ServerID]peerState
}

// peerState is the last exchange with a peer.
type peerState struct {
	ping pingMessage
	at   time.Time
}

func newPeerBook(t Timing, now time.Time) *peerBook {
	return &peerBook{
		detector: newDetector(t.SuspectAfter, now), hearsay: t.FailedAfter,
		peers: map[raftnode.ServerID]peerState{},
	}
}

// update notes an exchange with the sender of msg.
func (b *peerBook) update(msg pingMessage, now time.Time) {
	b.detector.contact(string(msg.ID), now)
	for id, millis := range msg.HeardMillis {
		// Compared before it is multiplied: what is too long for a duration wraps to any.
		if millis >= 0 && millis < b.hearsay.Milliseconds() {
			b.detector.contact(string(id), now.Add(-time.Duration(millis)*time.Millisecond))
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.peers[msg.ID] = peerState{msg, now}
}

func (b *peerBook) get(id raftnode.ServerID) (peerState, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.peers[id]
	return p, ok
}

// all returns a copy of the book.
func (b *peerBook) all() map[raftnode.ServerID]peerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.peers)
}

func (b *peerBook) forget(id raftnode.ServerID) {
	b.detector.forget(string(id))
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.peers, id)
}

// report returns what the peer said about its replica of group.
func (p peerState) report(group uint32) (groupReport, bool) {
	for _, r := range p.ping.Groups {
		if r.Group == group {
			return r, true
		}
	}
	return groupReport{}, false
}
