package system_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
)

func member(id string, status system.Status) system.Member {
	return system.Member{ID: id, NodeID: id[:1], Status: status}
}

// put is PutMember that must be accepted.
func put(t *testing.T, s *system.State, base uint64, m system.Member) *system.State {
	t.Helper()
	next, refusal := s.PutMember(base, m)
	if refusal != nil {
		t.Fatalf("refused: %+v", refusal)
	}
	return next
}

func TestMembersAreSortedAndStatesImmutable(t *testing.T) {
	var empty *system.State
	one := put(t, empty, 0, member("b#1", system.StatusJoining))
	two := put(t, one, 0, member("a#1", system.StatusJoining))
	three := put(t, two, 1, member("b#1", system.StatusActive))
	ids := func(s *system.State) (list []string) {
		for _, m := range s.Members {
			list = append(list, m.ID+" "+m.Status.String())
		}
		return list
	}
	for i, tc := range []struct {
		state *system.State
		want  []string
	}{
		{one, []string{"b#1 joining"}},
		{two, []string{"a#1 joining", "b#1 joining"}},
		{three, []string{"a#1 joining", "b#1 active"}},
	} {
		if got := ids(tc.state); !slices.Equal(got, tc.want) {
			t.Errorf("state %d has %q, want %q", i, got, tc.want)
		}
	}
	if m, found := three.Member("b#1"); !found || m.Version != 2 {
		t.Errorf("member %+v, %v; want version 2", m, found)
	}
	if _, found := empty.Member("a#1"); found {
		t.Error("an empty state has a member")
	}
}

func TestProposalsThatMustNotStandAreRefused(t *testing.T) {
	s := put(t, nil, 0, member("a#1", system.StatusActive))
	s = put(t, s, 0, member("r#1", system.StatusRemoved))
	s, refusal := s.PutTable(0, system.Table{Version: 99})
	if refusal != nil || s.Table.Version != 1 {
		t.Fatalf("table version %d, %+v; want 1", s.Table.Version, refusal)
	}
	genesis := system.Genesis{ClusterID: "c", Groups: 7, ReplicationFactor: 3}
	if s, refusal = s.Found(genesis); refusal != nil {
		t.Fatal(refusal)
	}
	other := genesis
	other.ClusterID = "d"
	propose := func(base uint64, m system.Member) func() (*system.State, *system.Refusal) {
		return func() (*system.State, *system.Refusal) { return s.PutMember(base, m) }
	}
	tests := []struct {
		name string
		do   func() (*system.State, *system.Refusal)
		want protocol.Code
	}{
		{"stale member", propose(0, member("a#1", system.StatusFailed)), protocol.CodeStale},
		{"future member", propose(2, member("a#1", system.StatusFailed)), protocol.CodeStale},
		{"unknown member with a base", propose(1, member("x#1", system.StatusActive)), protocol.CodeStale},
		{"removed member returns", propose(1, member("r#1", system.StatusActive)), protocol.CodeForbidden},
		{"removed member changes", propose(1, member("r#1", system.StatusRemoved)), protocol.CodeForbidden},
		{"no id", propose(0, system.Member{NodeID: "a", Status: system.StatusActive}), protocol.CodeMalformed},
		{"no status", propose(1, member("a#1", 0)), protocol.CodeMalformed},
		{"unknown status", propose(1, member("a#1", 7)), protocol.CodeMalformed},
		{"stale table", func() (*system.State, *system.Refusal) { return s.PutTable(0, system.Table{}) }, protocol.CodeStale},
		{"stale document", func() (*system.State, *system.Refusal) { return s.PutDocument(1, system.Document{Name: "d"}) }, protocol.CodeStale},
		{"nameless document", func() (*system.State, *system.Refusal) { return s.PutDocument(0, system.Document{}) }, protocol.CodeMalformed},
		{"large document", func() (*system.State, *system.Refusal) {
			return s.PutDocument(0, system.Document{Name: "d", Value: make([]byte, system.MaxDocumentBytes+1)})
		}, protocol.CodeTooLarge},
		{"second genesis", func() (*system.State, *system.Refusal) { return s.Found(other) }, protocol.CodeStale},
		{"empty genesis", func() (*system.State, *system.Refusal) { return s.Found(system.Genesis{}) }, protocol.CodeMalformed},
	}
	for _, tc := range tests {
		next, refusal := tc.do()
		if refusal == nil || refusal.Code != tc.want || refusal.Reason == "" {
			t.Errorf("%s: %+v, want a refusal with code %d", tc.name, refusal, tc.want)
		}
		if next != s {
			t.Errorf("%s: the state changed", tc.name)
		}
	}
	if next, refusal := s.Found(genesis); refusal != nil || next != s {
		t.Errorf("the same genesis again: %+v, want no change", refusal)
	}
}

func TestARecoveredClusterHasOneMemberAndAnotherName(t *testing.T) {
	s := put(t, nil, 0, member("a#1", system.StatusFailed))
	s = put(t, s, 0, member("b#1", system.StatusActive))
	s = put(t, s, 0, member("c#1", system.StatusRemoved))
	s, _ = s.Found(system.Genesis{ClusterID: "c", Groups: 2, ReplicationFactor: 3, Founder: "b#1"})
	s, _ = s.PutTable(0, system.Table{Groups: []system.Placement{{Voters: []string{"a#1", "b#1"}, Leader: "b#1", LeaderTerm: 4}, {}}})
	next, refusal := s.Recover("c.2", "a#1", 9)
	if refusal != nil {
		t.Fatal(refusal)
	}
	alone := system.Placement{Voters: []string{"a#1"}, Preferred: "a#1"}
	want := &system.State{
		Genesis: &system.Genesis{ClusterID: "c.2", Groups: 2, ReplicationFactor: 3, Founder: "b#1"},
		Members: []system.Member{
			{ID: "a#1", NodeID: "a", Status: system.StatusActive, SinceMillis: 9, Version: 2},
			{ID: "b#1", NodeID: "b", Status: system.StatusRemoved, SinceMillis: 9, Version: 2},
			{ID: "c#1", NodeID: "c", Status: system.StatusRemoved, Version: 1},
		},
		Table: system.Table{Version: 2, Groups: []system.Placement{alone, alone}},
	}
	if diff := cmp.Diff(want, next); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	if m, _ := s.Member("b#1"); m.Status != system.StatusActive || s.Genesis.ClusterID != "c" {
		t.Error("the old state changed")
	}
	for _, tc := range []struct {
		state             *system.State
		cluster, survivor string
	}{{nil, "x", "a#1"}, {next, "c.2", "a#1"}, {next, "", "a#1"}, {next, "c.3", "b#1"}, {next, "c.3", "d#1"}} {
		if after, refusal := tc.state.Recover(tc.cluster, tc.survivor, 9); refusal == nil || after != tc.state {
			t.Errorf("%s as %q: %+v", tc.survivor, tc.cluster, refusal)
		}
	}
}

func TestDocumentsLoadBack(t *testing.T) {
	want := put(t, nil, 0, system.Member{ID: "a#1", NodeID: "a", PeerAddr: "h:1", ClientURL: "u", Status: system.StatusSuspect, SinceMillis: 7})
	want = put(t, want, 0, member("b#1", system.StatusRemoved))
	want, _ = want.PutTable(0, system.Table{Groups: []system.Placement{{Voters: []string{"a#1"}, Preferred: "a#1", Leader: "a#1", LeaderTerm: 4}}})
	want, _ = want.Found(system.Genesis{ClusterID: "c", Groups: 7, ReplicationFactor: 3, Founder: "a#1", CreatedMillis: 5})

	want, _ = want.PutDocument(0, system.Document{Name: "b", Value: []byte("1")})
	want, _ = want.PutDocument(0, system.Document{Name: "a", Value: []byte("2")})
	want, _ = want.PutDocument(1, system.Document{Name: "b", Value: []byte("3")})

	documents := map[string][]byte{
		system.DocumentKey("a"): system.AppendDocument(nil, want.Document("a")),
		system.DocumentKey("b"): system.AppendDocument(nil, want.Document("b")),

		system.GenesisKey: system.AppendGenesis(nil, *want.Genesis),
		system.TableKey:   system.AppendTable(nil, want.Table),
	}
	for _, m := range want.Members {
		documents[system.MemberKey(m.ID)] = system.AppendMember(nil, m)
	}
	got := &system.State{}
	for key, value := range documents {
		var err error
		if got, err = got.Load(key, value); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

func TestMalformedDocumentsAreTypedErrors(t *testing.T) {
	m := system.AppendMember(nil, member("a#1", system.StatusActive))
	tests := map[string]struct {
		key   string
		value []byte
	}{
		"unknown key":        {"surprise", m},
		"foreign member":     {system.MemberKey("b#1"), m},
		"empty":              {system.MemberKey("a#1"), nil},
		"other format":       {system.MemberKey("a#1"), append([]byte{9}, m[1:]...)},
		"cut":                {system.MemberKey("a#1"), m[:len(m)-1]},
		"left over":          {system.MemberKey("a#1"), append(slices.Clone(m), 0)},
		"wide table version": {system.TableKey, []byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0}},
		"endless table":      {system.TableKey, []byte{1, 1, 0xff, 0xff, 0xff, 0xff, 1}},
		"foreign document":   {system.DocumentKey("a"), system.AppendDocument(nil, system.Document{Name: "b"})},
		"cut document":       {system.DocumentKey("a"), []byte{1, 9}},
		"cut genesis":        {system.GenesisKey, []byte{1, 1}},
	}
	for name, tc := range tests {
		if _, err := (&system.State{}).Load(tc.key, tc.value); !errors.Is(err, system.ErrMalformed) {
			t.Errorf("%s: error %v, want ErrMalformed", name, err)
		}
	}
}

func TestStatusesHaveNames(t *testing.T) {
	names := map[string]bool{}
	for s := system.StatusJoining; s <= system.StatusRemoved; s++ {
		names[s.String()] = true
	}
	if len(names) != 6 || names["status(1)"] {
		t.Errorf("names %v", names)
	}
	if got := system.Status(9).String(); got != "status(9)" {
		t.Errorf("unknown status is %q", got)
	}
}
