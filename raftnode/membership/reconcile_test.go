package membership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// group parses "leader voter voter+ | follower follower+": a plus sign is a server
// that answers, runs the group and is caught up, "~" one that answers and lags,
// "?" one that answers and does not run it; without a sign it is silent. "!" says
// that the leader cannot hand over any more.
func group(text string) replicas {
	have := replicas{health: map[string]health{}}
	text, have.stuck = strings.ReplaceAll(text, "!", ""), strings.Contains(text, "!")
	voters, followers, _ := strings.Cut(text, "|")
	parse := func(s string) (ids []string) {
		for _, f := range strings.Fields(s) {
			id := strings.TrimRight(f, "+~?")
			switch f[len(id):] {
			case "+":
				have.health[id] = health{recent: true, running: true, caughtUp: true}
			case "~":
				have.health[id] = health{recent: true, running: true}
			case "?":
				have.health[id] = health{recent: true}
			}
			ids = append(ids, id)
		}
		return ids
	}
	have.voters = parse(voters)
	followers, outside, _ := strings.Cut(followers, "/")
	have.followers = parse(followers)
	parse(outside)
	have.self = have.voters[0]
	return have
}

func TestNextAction(t *testing.T) {
	tests := []struct {
		name             string
		have             string
		want, rest, gone string
		act              string
	}{
		{"nothing to do", "a b+ c+", "a b c", "", "", "none"},
		{"a silent wanted voter stays", "a b+ c", "a b c", "", "", "none"},
		{"add a newcomer that runs the group", "a / b~", "a b", "", "", "add b"},
		{"wait for a newcomer to run the group", "a |/ b?", "a b", "", "", "none"},
		{"wait for a follower to catch up", "a | b~", "a b", "", "", "none"},
		{"promote a follower that caught up", "a | b+", "a b", "", "", "promote b"},
		{"one newcomer after the other", "a b+ |/ c+", "a b c", "", "", "add c"},
		{"do not promote what leaves no quorum", "a b c | d+", "a b c d", "", "", "none"},
		{"promote with one voter silent", "a b+ c | d+", "a b c d", "", "", "promote d"},
		{"remove a server that is gone first", "a b+ c | d+", "a b d", "", "c", "remove c"},
		{"then promote its replacement", "a b+ | d+", "a b d", "", "c", "promote d"},
		{"a gone voter stays while the rest has no quorum", "a b c", "a b c", "", "c", "none"},
		{"a dead voter waits for its replacement", "a b+ c | d~", "a b d", "", "", "none"},
		{"a dead voter goes when the replacement is ready", "a b+ c | d+", "a b d", "", "", "remove c"},
		{"a live voter goes after the replacement votes", "a b+ c+ | d+", "a b d", "", "", "promote d"},
		{"a live voter goes last", "a b+ c+ d+", "a b d", "", "", "remove c"},
		{"the leader hands over before it goes", "a b+ c+ d+", "b c d", "", "", "hand over b"},
		{"other voters go before the leader", "a b+ c+ d+ e+", "b c d", "", "", "remove e"},
		{"a leader that cannot hand over removes itself", "a! b+ c+ d+", "b c d", "", "", "remove a"},
		{"but not while the others have no quorum", "a! b+ c d", "b c d", "", "", "none"},
		{"a leader that is gone hands over at once", "a b+ c+", "b c", "", "a", "hand over b"},
		{"no hand-over to a voter that lags", "a b~ c+ d+", "b c d", "", "", "hand over c"},
		{"an unwanted follower goes", "a b+ | c+", "a b", "", "", "remove c"},
		{"a wanted follower stays one", "a b+ | c+", "a b", "c", "", "none"},
		{"add a follower", "a b+ |/ c+", "a b", "c", "", "add c"},
		{"a table without voters changes nothing", "a b+ c+", "", "", "", "none"},
		{"a single voter is never removed", "a", "b", "", "a", "none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			have := tt.have
			if !strings.Contains(have, "|") {
				have = strings.Replace(have, "/", "|/", 1)
			}
			want := target{voters: strings.Fields(tt.want), followers: strings.Fields(tt.rest), gone: strings.Fields(tt.gone)}
			if got := nextAction(want, group(have)).String(); got != tt.act {
				t.Errorf("%s with voters %s: %s, want %s", tt.have, tt.want, got, tt.act)
			}
		})
	}
}

// perform changes have as a group does, with every server answering.
func perform(have *replicas, a action) {
	drop := func(ids []string) []string {
		return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == a.id })
	}
	switch a.kind {
	case actAdd:
		have.followers = append(have.followers, a.id)
	case actPromote:
		have.followers, have.voters = drop(have.followers), append(have.voters, a.id)
	case actRemove:
		have.followers, have.voters = drop(have.followers), drop(have.voters)
	case actHandOver:
		have.self = a.id
	}
}

func TestReconcileReachesTheTargetAndKeepsAQuorum(t *testing.T) {
	servers := []string{"a", "b", "c", "d", "e", "f"}
	pick := func(rng *rand.Rand, n int) []string {
		ids := slices.Clone(servers)
		rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		return ids[:n]
	}
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		have := replicas{voters: pick(rng, 1+rng.IntN(5)), health: map[string]health{}}
		have.self = have.voters[0]
		want := target{voters: pick(rng, 1+rng.IntN(5))}
		for _, id := range servers {
			have.health[id] = health{recent: true, running: true, caughtUp: true}
		}
		// One server that is not needed may be dead.
		for _, id := range servers {
			if id != have.self && !slices.Contains(want.voters, id) && len(have.voters) > 2 {
				have.health[id] = health{}
				break
			}
		}
		low := min(len(have.voters), len(want.voters))
		for steps := 0; ; steps++ {
			a := nextAction(want, have)
			if a.kind == actNone {
				break
			}
			if steps > 40 {
				t.Fatalf("seed %d: no end: %v to %v, now %s", seed, have, want, a)
			}
			perform(&have, a)
			if have.answering() < len(have.voters)/2+1 || len(have.voters) < low-1 {
				t.Fatalf("seed %d: %s left voters %v, %d of them answer", seed, a, have.voters, have.answering())
			}
		}
		got, wanted := fmt.Sprint(slices.Sorted(slices.Values(have.voters))), fmt.Sprint(slices.Sorted(slices.Values(want.voters)))
		if got != wanted || len(have.followers) > 0 {
			t.Fatalf("seed %d: ended with voters %s and followers %v, want %s", seed, got, have.followers, wanted)
		}
	}
}
