package genesis

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func voter(i int, expects ...string) Node {
	id := string(rune('a' + i))
	return Node{ID: id + "#1", NodeID: id, Addr: id, Expects: expects, Durable: true}
}

func TestAssess(t *testing.T) {
	forgetful := voter(1, "a", "c")
	forgetful.Durable = false
	tests := []struct {
		name   string
		self   Node
		heard  []Node
		view   View
		quorum int
	}{
		{"nobody heard: the own list without the node", voter(0, "b", "c"), nil, View{"b", "c"}, 2},
		{"a list of itself alone", voter(0, "a"), nil, View{"a"}, 1},
		{"mutual lists, one silent", voter(0, "b", "c"), []Node{voter(1, "a", "c")}, View{"a", "b", "c"}, 2},
		{"identical lists, one silent", voter(0, "a", "b", "c"), []Node{voter(1, "a", "b", "c")}, View{"a", "b", "c"}, 2},
		{"an outsider gives no vote and no name", voter(0, "b", "c"),
			[]Node{voter(1, "a", "c"), voter(3, "a", "x")}, View{"a", "b", "c"}, 2},
		{"an outsider sees the voters", voter(3, "a"), []Node{voter(0, "b", "c"), voter(1, "a", "c")}, View{"a", "b", "c"}, 2},
		{"a chain of lists needs everybody", voter(0, "b"), []Node{voter(1, "c"), voter(2, "a")}, View{"a", "b", "c"}, 3},
		{"a voter without a disk needs everybody", voter(0, "b", "c"), []Node{forgetful}, View{"a", "b", "c"}, 3},
		{"a seed under two spellings needs everybody", voter(0, "b", "c"), []Node{voter(1, "a", "text of c")},
			View{"a", "b", "c", "text of c"}, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, err := Assess(tt.self, tt.heard)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.view, e.View); d != "" {
				t.Errorf("view (-want +got):\n%s", d)
			}
			if e.Quorum != tt.quorum {
				t.Errorf("quorum %d, want %d", e.Quorum, tt.quorum)
			}
		})
	}
}

func TestAssessRefusesTwoNodesAtOneAddress(t *testing.T) {
	other := voter(0, "b")
	other.ID = "a#2"
	for _, heard := range [][]Node{{other}, {voter(1, "a"), {ID: "z#1", Addr: "b"}}} {
		_, err := Assess(voter(0, "b"), heard)
		var conflict *AddressConflictError
		if !errors.As(err, &conflict) {
			t.Errorf("heard %v: error %v, want an address conflict", heard, err)
		}
	}
}

func TestAttemptProposesTheFounderAcceptedLast(t *testing.T) {
	self := voter(0, "a", "b", "c")
	e, err := Assess(self, []Node{voter(1, "a", "b", "c"), voter(2, "a", "b", "c")})
	if err != nil {
		t.Fatal(err)
	}
	b, c := Founder{ID: "b#1", Addr: "b"}, Founder{ID: "c#1", Addr: "c"}
	tr := NewAttempt(self, e, Ballot{Round: 6, Proposer: "z"})
	if got := tr.Ballot(); got != (Ballot{Round: 7, Proposer: "a#1"}) {
		t.Fatalf("ballot %v", got)
	}
	tr.Promised("b", Answer{Granted: true, Accepted: Ballot{Round: 5}, Founder: b})
	if _, ok := tr.Proposal(); ok {
		t.Fatal("one promise of three was enough")
	}
	tr.Promised("stranger", Answer{Granted: true})
	if _, ok := tr.Proposal(); ok {
		t.Fatal("a promise from outside the view was counted")
	}
	tr.Promised("a", Answer{Granted: true, Accepted: Ballot{Round: 3}, Founder: c})
	if f, ok := tr.Proposal(); !ok || f != b {
		t.Fatalf("proposal %v %v, want %v", f, ok, b)
	}
	tr.Promised("c", Answer{Granted: true, Accepted: Ballot{Round: 6}, Founder: c})
	if f, _ := tr.Proposal(); f != b {
		t.Fatal("a late promise changed the proposal")
	}
	tr.Accepted("a", Answer{Granted: true})
	tr.Accepted("b", Answer{Promised: Ballot{Round: 9, Proposer: "c#1"}})
	if _, ok := tr.Chosen(); ok {
		t.Fatal("chosen by one of three")
	}
	if tr.Highest().Round != 9 {
		t.Fatalf("highest ballot %v", tr.Highest())
	}
	tr.Accepted("c", Answer{Granted: true})
	if f, ok := tr.Chosen(); !ok || f != b {
		t.Fatalf("chosen %v %v, want %v", f, ok, b)
	}
}

func TestAttemptPassesOverAFounderWhoseMemoryIsGone(t *testing.T) {
	self, next := voter(0, "a", "b"), voter(1, "a", "b")
	self.Durable, next.Durable = false, false
	next.ID = "b#2"
	e, err := Assess(self, []Node{next})
	if err != nil {
		t.Fatal(err)
	}
	gone := Answer{Granted: true, Accepted: Ballot{Round: 1, Proposer: "b#1"}, Founder: Founder{ID: "b#1", Addr: "b"}}
	tr := NewAttempt(self, e, Ballot{})
	tr.Promised("a", gone)
	tr.Promised("b", Answer{Granted: true})
	if f, ok := tr.Proposal(); !ok || f.ID != self.ID {
		t.Fatalf("proposal %v %v, want the proposer itself", f, ok)
	}
}
