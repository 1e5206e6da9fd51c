package system

import (
	"bytes"
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
	// Documents is sorted by name. A document is never deleted.
	Documents []Document
	// Database is nil unless the cluster writes to one.
	Database *Database
}

// Document returns the document of a name; of one that was never stored, one of version
// zero.
func (s *State) Document(name string) Document {
	if s == nil {
		return Document{}
	}
	i, found := s.findDocument(name)
	if !found {
		return Document{}
	}
	return s.Documents[i]
}

func (s *State) findDocument(name string) (int, bool) {
	return slices.BinarySearchFunc(s.Documents, name, func(d Document, name string) int {
		return strings.Compare(d.Name, name)
	})
}

// PutDocument returns the state after a document was proposed that was computed from
// version base of it (zero: there was none). A stale base is refused; the same proposal
// again, which may be a repeat, changes nothing.
func (s *State) PutDocument(base uint64, d Document) (*State, *Refusal) {
	old := s.Document(d.Name)
	switch {
	case d.Name == "" || len(d.Name) > MaxDocumentName:
		return s, refuse(protocol.CodeMalformed, "a document needs a name of at most %d bytes", MaxDocumentName)
	case len(d.Value) > MaxDocumentBytes:
		return s, refuse(protocol.CodeTooLarge, "document %s is larger than %d bytes", d.Name, MaxDocumentBytes)
	case old.Version == base+1 && bytes.Equal(old.Value, d.Value):
		return s, nil
	case old.Version != base:
		return s, refuse(protocol.CodeStale, "document %s is at version %d, not %d", d.Name, old.Version, base)
	}
	d.Version, d.Value = base+1, slices.Clone(d.Value)
	return s.withDocument(d), nil
}

func (s *State) withDocument(d Document) *State {
	next := s.clone()
	i, found := next.findDocument(d.Name)
	next.Documents = slices.Clone(next.Documents)
	if found {
		next.Documents[i] = d
	} else {
		next.Documents = slices.Insert(next.Documents, i, d)
	}
	return next
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

// PutDatabase returns the state after the cluster's database was proposed. Repeating the
// same one changes nothing; another one is refused.
func (s *State) PutDatabase(d Database) (*State, *Refusal) {
	switch {
	case d.Instance == "" || d.Epoch == 0:
		return s, refuse(protocol.CodeMalformed, "incomplete database document")
	case s == nil || s.Database == nil:
		next := s.clone()
		next.Database = &d
		return next, nil
	case *s.Database == d:
		return s, nil
	default:
		return s, refuse(protocol.CodeStale, "the cluster writes to the database %s already", s.Database.Instance)
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

// Recover returns the state of a cluster that goes on with one survivor, under another
// name: all other members are removed for good, and the survivor is to hold every group.
// It is refused without an identity, with the present name, and for a survivor that is
// no member.
func (s *State) Recover(clusterID, survivor string, sinceMillis int64) (*State, *Refusal) {
	self, known := s.Member(survivor)
	switch {
	case s == nil || s.Genesis == nil:
		return s, refuse(protocol.CodeStale, "there is no cluster yet")
	case clusterID == "" || clusterID == s.Genesis.ClusterID:
		return s, refuse(protocol.CodeMalformed, "a recovered cluster needs another name than %q", clusterID)
	case !known || self.Status == StatusRemoved:
		return s, refuse(protocol.CodeStale, "%s is no member", survivor)
	}
	next := s.clone()
	genesis := *s.Genesis
	genesis.ClusterID = clusterID
	next.Genesis = &genesis
	next.Members = slices.Clone(s.Members)
	for i := range next.Members {
		m := &next.Members[i]
		status := StatusRemoved
		if m.ID == survivor {
			status = StatusActive
		}
		if m.Status != status {
			m.Status, m.SinceMillis = status, sinceMillis
			m.Version++
		}
	}
	next.Table = Table{Version: s.Table.Version + 1}
	for range genesis.Groups {
		next.Table.Groups = append(next.Table.Groups, Placement{Voters: []string{survivor}, Preferred: survivor})
	}
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
