package membership

import (
	"cmp"
	"slices"

	"github.com/quorate/quorate/fsm/system"
)

// leadership is who leads a group, in which term. The zero leadership is unknown.
type leadership struct {
	id   string
	term uint64
}

// candidates are the members that may hold replicas. dead tells that a failed
// member is not waited for any more; it stays a candidate all the same while the
// others are too few for rf replicas.
func candidates(members []system.Member, rf int, dead func(id string) bool) []system.Member {
	var all, living []system.Member
	for _, m := range members {
		switch m.Status {
		case system.StatusLeaving, system.StatusRemoved:
			continue
		default:
		}
		all = append(all, m)
		if m.Status != system.StatusFailed || !dead(m.ID) {
			living = append(living, m)
		}
	}
	if len(living) < rf {
		return all
	}
	return living
}

// systemVoters is how many of n candidates vote in the system group. Beyond two
// the number is odd: a fourth voter would survive no more failures than three.
func systemVoters(n int) int {
	switch {
	case n <= 3:
		return n
	case n == 4:
		return 3
	default:
		return 5
	}
}

// systemTarget is where the system group should get to: every member follows it,
// some of the candidates vote. A voter keeps its vote while it is a candidate,
// silent or not: every change of voters costs a catch-up.
func systemTarget(members, candidates []system.Member, voters []string) target {
	ranked := slices.Clone(candidates)
	rank := func(m system.Member) int {
		switch {
		case slices.Contains(voters, m.ID):
			return 0
		case m.Status == system.StatusActive:
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(ranked, func(a, b system.Member) int { return cmp.Compare(rank(a), rank(b)) })
	var want target
	for _, m := range ranked[:systemVoters(len(ranked))] {
		want.voters = append(want.voters, m.ID)
	}
	for _, m := range members {
		switch {
		case m.Status == system.StatusRemoved:
			want.gone = append(want.gone, m.ID)
		case !slices.Contains(want.voters, m.ID):
			want.followers = append(want.followers, m.ID)
		}
	}
	return want
}

// dataTarget is where data group number group should get to.
func dataTarget(state *system.State, group uint32) target {
	var want target
	if int(group) <= len(state.Table.Groups) {
		want.voters = state.Table.Groups[group-1].Voters
	}
	for _, m := range state.Members {
		if m.Status == system.StatusRemoved {
			want.gone = append(want.gone, m.ID)
		}
	}
	return want
}

// planTable is the partition table that should follow state's, and whether it
// differs. seen holds the leader of each data group as far as it is known; an
// older term never replaces a newer one.
func planTable(state *system.State, nodes []system.Member, place Place, seen map[uint32]leadership) (system.Table, bool) {
	old := state.Table
	next := system.Table{Groups: place(nodes, state.Genesis.Groups, state.Genesis.ReplicationFactor, &old)}
	for i := range next.Groups {
		p := &next.Groups[i]
		if i < len(old.Groups) {
			p.Leader, p.LeaderTerm = old.Groups[i].Leader, old.Groups[i].LeaderTerm
			if len(p.Voters) == 0 {
				// Nobody may take it: better where it is than nowhere.
				p.Voters, p.Preferred = old.Groups[i].Voters, old.Groups[i].Preferred
			}
		}
		if l := seen[uint32(i)+1]; l.id != "" && l.term >= p.LeaderTerm {
			p.Leader, p.LeaderTerm = l.id, l.term
		}
	}
	return next, !slices.EqualFunc(old.Groups, next.Groups, samePlacement)
}

func samePlacement(a, b system.Placement) bool {
	return slices.Equal(a.Voters, b.Voters) && a.Preferred == b.Preferred && a.Leader == b.Leader && a.LeaderTerm == b.LeaderTerm
}
