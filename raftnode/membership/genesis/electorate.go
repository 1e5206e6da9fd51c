package genesis

import (
	"cmp"
	"fmt"
	"slices"
)

// Node is what an empty node says about itself.
type Node struct {
	// ID is the server id: node id, '#', incarnation.
	ID string
	// NodeID is the part of ID that survives the loss of the disk.
	NodeID string
	// Addr is the address the node advertises, its name in views.
	Addr string
	// Expects are the names of the node's seed list: the address of a seed that
	// answers, the text of one that does not. It may or may not hold Addr.
	Expects []string
	// View is the electorate as the node sees it.
	View View
	// Durable is false if the node forgets its promises when it stops.
	Durable bool
}

// Electorate is the set of nodes that decide, as one node sees it.
type Electorate struct {
	// View names the voters, heard and unheard.
	View View
	// Quorum is how many of them must agree: a majority where every voter heard
	// from names all others and keeps its promises on disk, and all of them
	// otherwise.
	Quorum int
	// Heard are the voters that are known to be up, by id. It holds the assessing
	// node itself if that is a voter.
	Heard []Node
}

// AddressConflictError says that two nodes advertise one address, so that views
// cannot tell them apart and no decision is safe.
type AddressConflictError struct {
	Addr string
	// IDs are the server ids of the two.
	IDs [2]string
}

// Error implements error.
func (e *AddressConflictError) Error() string {
	return fmt.Sprintf("nodes %s and %s advertise the same address %s", e.IDs[0], e.IDs[1], e.Addr)
}

// Assess computes the electorate as self sees it, from its own list and the lists
// of the nodes that it has heard lately. Voters are the nodes that a list names,
// starting from the list of self and following the lists of voters only: a node
// that knows the others but is not named by them has no vote, or it could shift
// the majority without their knowledge. The error is *AddressConflictError.
func Assess(self Node, heard []Node) (Electorate, error) {
	byAddr := map[string]Node{self.Addr: self}
	for _, n := range heard {
		if known, taken := byAddr[n.Addr]; taken && known.ID != n.ID {
			return Electorate{}, &AddressConflictError{Addr: n.Addr, IDs: [2]string{known.ID, n.ID}}
		}
		byAddr[n.Addr] = n
	}
	view := closure(self.Expects, byAddr)
	e := Electorate{View: view, Quorum: view.Majority()}
	for _, name := range view {
		n, up := byAddr[name]
		if !up {
			continue
		}
		e.Heard = append(e.Heard, n)
		if !n.Durable || !expectsAll(n, view) {
			e.Quorum = len(view)
		}
	}
	slices.SortFunc(e.Heard, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	return e, nil
}

func closure(start []string, byAddr map[string]Node) View {
	names := slices.Clone(start)
	seen := map[string]bool{}
	for i := 0; i < len(names); i++ {
		if name := names[i]; !seen[name] {
			seen[name] = true
			names = append(names, byAddr[name].Expects...)
		}
	}
	return NewView(names...)
}

// expectsAll reports whether n itself names every other voter.
func expectsAll(n Node, view View) bool {
	for _, name := range view {
		if name != n.Addr && !slices.Contains(n.Expects, name) {
			return false
		}
	}
	return true
}

// Agreeing returns the voters heard from whose own view equals e.View, by id. The
// entry of the assessing node must carry e.View to be counted.
func (e Electorate) Agreeing() []Node {
	var agree []Node
	for _, n := range e.Heard {
		if n.View.Equal(e.View) {
			agree = append(agree, n)
		}
	}
	return agree
}

// Unheard returns the names of e.View that have not answered.
func (e Electorate) Unheard() []string {
	var names []string
	for _, name := range e.View {
		if !slices.ContainsFunc(e.Heard, func(n Node) bool { return n.Addr == name }) {
			names = append(names, name)
		}
	}
	return names
}
