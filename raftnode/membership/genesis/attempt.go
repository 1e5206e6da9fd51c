package genesis

// Attempt is one node's try to have a founder chosen, under one ballot. Answers
// may come in any order and repeatedly. It is not safe for concurrent use.
type Attempt struct {
	ballot  Ballot
	view    View
	quorum  int
	founder Founder
	// replaced tells that a founder accepted earlier cannot exist any more.
	replaced func(Founder) bool

	highest Ballot
	adopted Ballot
	// fixed is set once founder was handed out for the second phase: two values
	// under one ballot would break the protocol.
	fixed    bool
	promised map[string]bool
	accepted map[string]bool
}

// NewAttempt starts a try of the node self for the electorate e, with itself as
// the founder unless the acceptors tell of an earlier one. last is the highest
// ballot that self knows of, its own acceptor's included. A ballot must never be
// used twice: before anybody else is asked, self's own acceptor must have granted
// the first phase, durably.
func NewAttempt(self Node, e Electorate, last Ballot) *Attempt {
	return &Attempt{
		ballot:   Ballot{Round: last.Round + 1, Proposer: self.ID},
		view:     e.View,
		quorum:   e.Quorum,
		founder:  Founder{ID: self.ID, Addr: self.Addr},
		replaced: func(f Founder) bool { return Replaced(f, e) },
		promised: map[string]bool{},
		accepted: map[string]bool{},
	}
}

// Replaced reports whether founder f is gone for good: another node that keeps
// nothing on disk has taken its address, so whatever f founded ended with its
// process. A quorum is everybody in that case, so no member of a cluster that f
// founded and others joined can have been missed.
func Replaced(f Founder, e Electorate) bool {
	for _, n := range e.Heard {
		if n.Addr == f.Addr && n.ID != f.ID && !n.Durable {
			return true
		}
	}
	return false
}

// Ballot is the attempt's number, for both phases.
func (t *Attempt) Ballot() Ballot { return t.ballot }

// View is the electorate that both phases are addressed to.
func (t *Attempt) View() View { return t.view }

// Promised records the first-phase answer of the voter called name.
func (t *Attempt) Promised(name string, a Answer) {
	t.observe(a)
	if !a.Granted || !t.view.Has(name) {
		return
	}
	t.promised[name] = true
	if !t.fixed && a.Accepted.Compare(t.adopted) > 0 && !t.replaced(a.Founder) {
		t.adopted, t.founder = a.Accepted, a.Founder
	}
}

// Proposal returns the founder to propose in the second phase, false while too few
// promises are in. Promises recorded after that do not change it.
func (t *Attempt) Proposal() (Founder, bool) {
	if len(t.promised) < t.quorum {
		return Founder{}, false
	}
	t.fixed = true
	return t.founder, true
}

// Accepted records the second-phase answer of the voter called name.
func (t *Attempt) Accepted(name string, a Answer) {
	t.observe(a)
	if a.Granted && t.view.Has(name) {
		t.accepted[name] = true
	}
}

// Chosen returns the founder once a quorum has accepted it. It will never change.
func (t *Attempt) Chosen() (Founder, bool) {
	return t.founder, len(t.accepted) >= t.quorum
}

// Highest is the highest ballot that an answer named: the next attempt must be
// above it.
func (t *Attempt) Highest() Ballot { return t.highest }

func (t *Attempt) observe(a Answer) {
	if a.Promised.Compare(t.highest) > 0 {
		t.highest = a.Promised
	}
}
