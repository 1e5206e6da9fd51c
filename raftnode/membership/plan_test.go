package membership

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/fsm/system"
)

var statusLetters = map[string]system.Status{
	"j": system.StatusJoining, "a": system.StatusActive, "s": system.StatusSuspect,
	"l": system.StatusLeaving, "f": system.StatusFailed, "r": system.StatusRemoved,
}

// members parses "n1:a n2:f": ids with the first letter of their status.
func members(text string) []system.Member {
	var list []system.Member
	for _, f := range strings.Fields(text) {
		id, status, _ := strings.Cut(f, ":")
		list = append(list, system.Member{ID: id, NodeID: id, Status: statusLetters[status], Version: 1})
	}
	return list
}

func ids(list []system.Member) string {
	var names []string
	for _, m := range list {
		names = append(names, m.ID)
	}
	return strings.Join(names, " ")
}

// placeFirst puts every group on the first rf members and spreads the leaders.
func placeFirst(list []system.Member, groups uint32, rf int, _ *system.Table) []system.Placement {
	plan := make([]system.Placement, groups)
	for g := range plan {
		for _, m := range list[:min(rf, len(list))] {
			plan[g].Voters = append(plan[g].Voters, m.ID)
		}
		if n := len(plan[g].Voters); n > 0 {
			plan[g].Preferred = plan[g].Voters[g%n]
		}
	}
	return plan
}

func TestCandidates(t *testing.T) {
	always := func(string) bool { return true }
	never := func(string) bool { return false }
	tests := []struct {
		name, members string
		dead          func(string) bool
		want          string
	}{
		{"leaving and removed ones are none", "a:a b:l c:r d:j e:s", never, "a d e"},
		{"a failed one is waited for", "a:a b:a c:a d:f", never, "a b c d"},
		{"a dead one is replaced where a spare is", "a:a b:a c:a d:f", always, "a b c"},
		{"a dead one stays where no spare is", "a:a b:a d:f", always, "a b d"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ids(candidates(members(tt.members), 3, tt.dead)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestSystemTarget(t *testing.T) {
	tests := []struct {
		name, members, voters string
		want                  string
	}{
		{"one", "a:a", "a", "[a] [] []"},
		{"two vote", "a:a b:j", "a", "[a b] [] []"},
		{"of four, three vote", "a:a b:a c:a d:a", "a b c", "[a b c] [d] []"},
		{"a voter keeps its vote while it is silent", "a:a b:f c:a d:a", "a b c", "[a b c] [d] []"},
		{"of five, five vote", "a:a b:a c:a d:a e:j", "a b c", "[a b c d e] [] []"},
		{"the sixth follows", "a:a b:a c:a d:a e:a f:a", "b c d e f", "[b c d e f] [a] []"},
		{"a leaving member follows until it is gone", "a:a b:l c:a", "a b c", "[a c] [b] []"},
		{"a removed one is gone", "a:a b:r", "a b", "[a] [] [b]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all := members(tt.members)
			w := systemTarget(all, candidates(all, 3, func(string) bool { return false }), strings.Fields(tt.voters))
			if got := fmt.Sprint(w.voters, w.followers, w.gone); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestPlanTableChangesOnlyWhatChanged(t *testing.T) {
	state := &system.State{Genesis: &system.Genesis{Groups: 2, ReplicationFactor: 3}, Members: members("a:a b:a")}
	table, changed := planTable(state, state.Members, placeFirst, map[uint32]leadership{1: {"a", 2}})
	if !changed || len(table.Groups) != 2 || table.Groups[0].Leader != "a" || table.Groups[0].LeaderTerm != 2 {
		t.Fatalf("first table: changed %v, %+v", changed, table)
	}
	state.Table = table
	if again, changed := planTable(state, state.Members, placeFirst, map[uint32]leadership{1: {"a", 2}}); changed {
		t.Fatalf("the same facts changed the table: %s", cmp.Diff(table, again))
	}
	if again, changed := planTable(state, state.Members, placeFirst, map[uint32]leadership{1: {"b", 1}}); changed {
		t.Fatalf("an older term changed the table: %s", cmp.Diff(table, again))
	}
	if _, changed := planTable(state, state.Members, placeFirst, nil); changed {
		t.Fatal("an unknown leader changed the table")
	}
	next, changed := planTable(state, state.Members, placeFirst, map[uint32]leadership{1: {"b", 3}})
	if !changed || next.Groups[0].Leader != "b" {
		t.Fatalf("a newer leader did not change the table: %+v", next)
	}
}

func TestStatusAfter(t *testing.T) {
	timing := DefaultTiming()
	tests := []struct {
		was     string
		silence time.Duration
		settled bool
		want    string
	}{
		{"a", 0, true, "a"},
		{"a", 3 * time.Second, true, "s"},
		{"s", 4 * time.Second, true, "s"},
		{"s", time.Second, true, "a"},
		{"s", 8 * time.Second, true, "f"},
		{"f", 5 * time.Second, true, "f"},
		{"f", time.Second, true, "a"},
		{"f", time.Second, false, "j"},
		{"a", time.Second, false, "a"},
		{"j", time.Second, false, "j"},
		{"j", 4 * time.Second, true, "a"},
		{"j", 9 * time.Second, false, "f"},
		{"l", time.Hour, true, "l"},
		{"r", 0, true, "r"},
	}
	for _, tt := range tests {
		if got := timing.statusAfter(statusLetters[tt.was], tt.silence, tt.settled); got != statusLetters[tt.want] {
			t.Errorf("%s after %s of silence (settled %v): %s, want %s", tt.was, tt.silence, tt.settled, got, statusLetters[tt.want])
		}
	}
}

func TestDetectorForgivesItsOwnStandstill(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	d := newDetector(3*time.Second, start)
	if got := d.silence("a", at(1)); got != 0 {
		t.Fatalf("silence of a stranger: %s", got)
	}
	d.contact("a", at(2))
	d.contact("a", at(1))
	d.look(at(3))
	if got := d.silence("a", at(4)); got != 2*time.Second {
		t.Fatalf("silence %s, want 2s", got)
	}
	d.look(at(13))
	if got := d.silence("a", at(13)); got != 0 {
		t.Fatalf("silence after the process stood still: %s, want 0", got)
	}
	d.forget("a")
	if got := d.silence("a", at(20)); got != 0 {
		t.Fatalf("silence of a forgotten peer: %s, want 0", got)
	}
}
