package genesis

import "cmp"

// Ballot numbers one attempt. The zero Ballot is below every real one.
type Ballot struct {
	Round uint64
	// Proposer is the server id of the node that runs the attempt; it makes the
	// ballots of different nodes different.
	Proposer string
}

// Compare orders ballots by round, then proposer.
func (b Ballot) Compare(c Ballot) int {
	if r := cmp.Compare(b.Round, c.Round); r != 0 {
		return r
	}
	return cmp.Compare(b.Proposer, c.Proposer)
}

// Founder is the value that is decided on. The zero Founder is none.
type Founder struct {
	ID   string
	Addr string
}

// Acceptor is one node's promises. The zero Acceptor has promised nothing. A new
// value must be durable before the answer that came with it leaves the node.
type Acceptor struct {
	// Promised is the highest ballot seen; lower ones are refused.
	// Invariant: Accepted <= Promised.
	Promised Ballot
	// Accepted is the ballot under which Founder was accepted, zero for none.
	Accepted Ballot
	Founder  Founder
}

// Answer is an acceptor's reply to both phases. Promised, Accepted and Founder
// are those of the acceptor after the request.
type Answer struct {
	Granted  bool
	Promised Ballot
	Accepted Ballot
	Founder  Founder
}

// Prepare answers the first phase of ballot b: granted if no equal or higher
// ballot was promised before. The repeated request of one attempt is granted
// again, since its answer may have been lost.
func (a Acceptor) Prepare(b Ballot) (Acceptor, Answer) {
	granted := b.Compare(a.Promised) >= 0
	if granted {
		a.Promised = b
	}
	return a, a.answer(granted)
}

// Accept answers the second phase of ballot b: granted unless a higher ballot was
// promised.
func (a Acceptor) Accept(b Ballot, f Founder) (Acceptor, Answer) {
	granted := b.Compare(a.Promised) >= 0
	if granted {
		a.Promised, a.Accepted, a.Founder = b, b, f
	}
	return a, a.answer(granted)
}

func (a Acceptor) answer(granted bool) Answer {
	return Answer{Granted: granted, Promised: a.Promised, Accepted: a.Accepted, Founder: a.Founder}
}
