package membership

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/raftnode/membership/genesis"
	"github.com/quorate/quorate/raftnode/mux"
)

// former is a node's part in founding a cluster while it belongs to none: what it
// has heard of the other empty nodes, and its votes. It is safe for concurrent
// use; it calls nobody.
type former struct {
	store IdentityStore
	seeds []string
	// fresh is how long an answer counts. Afterwards the node is silent and a seed
	// has its text as its name again, so that all nodes soon name it alike.
	fresh time.Duration

	// mu protects the fields below and orders the writes of the acceptor.
	mu sync.Mutex
	// self has everything but Expects and View.
	self     genesis.Node
	acceptor genesis.Acceptor
	// highest is the highest ballot that others named.
	highest genesis.Ballot
	// closed: the node founds a cluster or belongs to one, and votes no more.
	closed bool
	// chosen: the voters have chosen this node as the founder.
	chosen bool
	heard  map[string]heardNode
	// named maps the text of a seed to the node that answered there last.
	named map[string]seedName
}

type heardNode struct {
	node genesis.Node
	at   time.Time
}

type seedName struct {
	id, addr string
	at       time.Time
}

func newFormer(self genesis.Node, seeds []string, timing Timing, store IdentityStore) (*former, error) {
	acceptor, err := loadAcceptor(store)
	if err != nil {
		return nil, err
	}
	return &former{
		store: store, seeds: slices.Clone(seeds), self: self, acceptor: acceptor,
		fresh: 2*timing.CallTimeout + 4*timing.HelloInterval,
		heard: map[string]heardNode{}, named: map[string]seedName{},
	}, nil
}

// record notes what an empty node said about itself. seed is the text under which
// it was dialed, empty if it called.
func (f *former) record(seed string, n genesis.Node, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seed != "" {
		f.named[seed] = seedName{n.ID, n.Addr, now}
	}
	if n.ID == f.self.ID {
		return
	}
	for id, h := range f.heard {
		// The node at this address has started again without its data.
		if id != n.ID && h.node.NodeID == n.NodeID && h.node.Addr == n.Addr {
			delete(f.heard, id)
		}
	}
	f.heard[n.ID] = heardNode{n, now}
}

// electorate assesses who may vote now, and returns this node as it is to be
// described to others. On an address conflict it describes a node without a view,
// which takes part in nothing.
func (f *former) electorate(now time.Time) (genesis.Node, genesis.Electorate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.electorateLocked(now)
}

func (f *former) electorateLocked(now time.Time) (genesis.Node, genesis.Electorate, error) {
	self := f.self
	for _, seed := range f.seeds {
		name := f.named[seed]
		switch {
		case name.id == self.ID || now.Sub(name.at) <= f.fresh:
			self.Expects = append(self.Expects, name.addr)
		default:
			self.Expects = append(self.Expects, seed)
		}
	}
	maps.DeleteFunc(f.heard, func(_ string, h heardNode) bool { return now.Sub(h.at) > f.fresh })
	var others []genesis.Node
	for _, id := range slices.Sorted(maps.Keys(f.heard)) {
		others = append(others, f.heard[id].node)
	}
	e, err := genesis.Assess(self, others)
	if err != nil {
		return self, e, err
	}
	self.View = e.View
	for i := range e.Heard {
		if e.Heard[i].ID == self.ID {
			e.Heard[i].View = e.View
		}
	}
	return self, e, nil
}

// targets are the addresses to ask: all seeds, and the voters that others named.
func (f *former) targets(now time.Time) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	self, e, _ := f.electorateLocked(now)
	texts := slices.Concat(f.seeds, e.View)
	slices.Sort(texts)
	texts = slices.Compact(texts)
	return slices.DeleteFunc(texts, func(text string) bool {
		return text == self.Addr || f.named[text].id == self.ID
	})
}

// attempt starts a try to have a founder chosen.
func (f *former) attempt(self genesis.Node, e genesis.Electorate) *genesis.Attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.acceptor.Promised
	if f.highest.Compare(last) > 0 {
		last = f.highest
	}
	return genesis.NewAttempt(self, e, last)
}

// learned notes a ballot that another acceptor named.
func (f *former) learned(b genesis.Ballot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.Compare(f.highest) > 0 && b.Round < maxRound {
		f.highest = b
	}
}

// maxRound keeps a garbled ballot from using up all numbers.
const maxRound = 1 << 48

// vote answers one phase of an attempt; the promise is durable when it returns.
// Errors are *mux.RemoteError where the attempt is to blame.
func (f *former) vote(method mux.Method, msg voteMessage, now time.Time) (genesis.Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if msg.Ballot.Round == 0 || msg.Ballot.Round >= maxRound {
		return genesis.Answer{}, &mux.RemoteError{Code: codeMalformed, Text: "ballot out of range"}
	}
	if f.closed {
		return genesis.Answer{}, &mux.RemoteError{Code: codeIsMember, Text: "the founding is over for this node"}
	}
	self, _, err := f.electorateLocked(now)
	if err != nil || !self.View.Equal(msg.View) || !self.View.Has(self.Addr) {
		return genesis.Answer{}, &mux.RemoteError{Code: codeOtherView, Text: fmt.Sprintf("the voters here are %v", self.View)}
	}
	var next genesis.Acceptor
	var answer genesis.Answer
	if method == methodPrepare {
		next, answer = f.acceptor.Prepare(msg.Ballot)
	} else {
		next, answer = f.acceptor.Accept(msg.Ballot, msg.Founder)
	}
	if next != f.acceptor {
		if err := saveDocument(f.store, acceptorDocument, next); err != nil {
			return genesis.Answer{}, err
		}
		f.acceptor = next
	}
	return answer, nil
}

// choose notes that this node was chosen as the founder.
func (f *former) choose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.chosen = true
}

// isChosen reports whether choose was called.
func (f *former) isChosen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chosen
}

// close ends the node's part: it votes no more.
func (f *former) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}
