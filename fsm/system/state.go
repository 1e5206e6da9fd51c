package system

import (
	"slices"
	"strings"

	"github.com/quorate/quorate/protocol"
)

// State is an immutable snapshot of the cluster documents; it must not be
// modified. All methods accept a nil State, which is empty, and are safe for
// concurrent use.
type State struct {
	// Genesis is nil until the cluster was founded.
	Genesis *Genesis
	// Members is sorted by ID and includes removed ones.
	Members []Member
	Table   Table
}

// Member returns the member with the server id, and whether there is one.
func (s *State) Member(id string) (Member, bool) {
	if s == nil {
		return Member{}, false
	}
	i, found := s.find(id)
	if !found {
		return Member{}, false
	}
	return s.Members[i], true
}

func (s *State) find(id string) (int, bool) {
	return slices.BinarySearchFunc(s.Members, id, func(m Member, id string) int {
		return strings.Compare(m.ID, id)
	})
}

// Found returns the state after the cluster's identity was proposed. Repeating the
// same identity changes nothing; another one is refused.
func (s *State) Found(g Genesis) (*State, *Refusal) {
	switch {
	case g.ClusterID == "" || g.Groups == 0 || g.ReplicationFactor <= 0:
		return s, refuse(protocol.CodeMalformed, "incomplete cluster identity")
	case s == nil || s.Genesis == nil:
		next := s.clone()
		next.Genesis = &g
		return next, nil
	case *s.Genesis == g:
		return s, nil
	default:
		return s, refuse(protocol.CodeStale, "the cluster is %s already", s.Genesis.ClusterID)
	}
}

// PutMember returns the state after a member document was proposed that was
// computed from version base of it (zero: there was none). A stale base is
// refused, and so is every change of a removed member: its id can never return.
func (s *State) PutMember(base uint64, m Member) (*State, *Refusal) {
	old, _ := s.Member(m.ID)
	switch {
	case m.ID == "" || m.NodeID == "" || m.Status < StatusJoining || m.Status > StatusRemoved:
		return s, refuse(protocol.CodeMalformed, "incomplete member document")
	case old.Status == StatusRemoved:
		return s, refuse(protocol.CodeForbidden, "member %s was removed for good", m.ID)
	case old.Version != base:
		return s, refuse(protocol.CodeStale, "member %s is at version %d, not %d", m.ID, old.Version, base)
	}
	m.Version = base + 1
	return s.withMember(m), nil
}

// PutTable returns the state after a partition table was proposed that was
// computed from version base (zero: there was none). A stale base is refused.
func (s *State) PutTable(base uint32, t Table) (*State, *Refusal) {
	next := s.clone()
	if next.Table.Version != base {
		return s, refuse(protocol.CodeStale, "the partition table is at version %d, not %d", next.Table.Version, base)
	}
	t.Version = base + 1
	next.Table = t
	return next, nil
}

// clone copies the snapshot; the members are shared until withMember.
func (s *State) clone() *State {
	if s == nil {
		return &State{}
	}
	next := *s
	return &next
}

func (s *State) withMember(m Member) *State {
	next := s.clone()
	i, found := next.find(m.ID)
	next.Members = slices.Clone(next.Members)
	if found {
		next.Members[i] = m
	} else {
		next.Members = slices.Insert(next.Members, i, m)
	}
	return next
}
