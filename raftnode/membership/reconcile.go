package membership

import (
	"fmt"
	"slices"
)

// actionKind is what a group's leader does next to its group.
type actionKind uint8

const (
	actNone     actionKind = iota
	actAdd                 // add as a non-voter
	actPromote             // make a non-voter a voter
	actRemove              // remove from the configuration
	actHandOver            // transfer the leadership
)

func (k actionKind) String() string {
	return [...]string{"none", "add", "promote", "remove", "hand over"}[k]
}

// action is one change to one group.
type action struct {
	kind actionKind
	id   string
}

func (a action) String() string {
	if a.kind == actNone {
		return a.kind.String()
	}
	return fmt.Sprintf("%s %s", a.kind, a.id)
}

// target is where a group should get to.
type target struct {
	// voters should vote; followers should only receive the log.
	voters, followers []string
	// gone are servers that can never come back.
	gone []string
}

// replicas is a group as its leader sees it.
type replicas struct {
	self              string
	voters, followers []string
	health            map[string]health
	// stuck: handing over was tried in this term in vain, and is not possible again.
	stuck bool
}

// health is what the leader knows about a server. The zero health is a server
// that does not answer.
type health struct {
	// recent: it answered lately.
	recent bool
	// running: it runs a replica of the group. caughtUp: that replica is at most a
	// few entries behind the leader.
	running, caughtUp bool
}

// nextAction is the next single change on the way from have to want, decided by
// the group's leader. Each change keeps a quorum of servers that answer, counted
// after the change; where that is impossible nothing is done.
//
// A dead server goes before its replacement gets a vote: with the replacement
// first, a group of three would for a while be four with one dead, where one more
// failure stops it. A live server goes after its replacement voted, so that the
// number of copies never falls.
func nextAction(want target, have replicas) action {
	steps := []func(target, replicas) action{removeGone, removeDead, promote, add, removeExtra}
	for _, step := range steps {
		if a := step(want, have); a.kind != actNone {
			return a
		}
	}
	return action{}
}

// removeGone removes servers that can never come back.
func removeGone(want target, have replicas) action {
	for _, id := range want.gone {
		if slices.Contains(have.followers, id) {
			return action{actRemove, id}
		}
		if !slices.Contains(have.voters, id) {
			continue
		}
		if id == have.self {
			return stepAside(want, have)
		}
		if have.quorumWithout(id) {
			return action{actRemove, id}
		}
	}
	return action{}
}

// removeDead removes silent voters that should not vote, once all that should do
// or are ready to.
func removeDead(want target, have replicas) action {
	for _, id := range want.voters {
		if !slices.Contains(have.voters, id) && !have.ready(id) {
			return action{}
		}
	}
	for _, id := range have.voters {
		if id != have.self && !have.health[id].recent && !slices.Contains(want.voters, id) && have.quorumWithout(id) {
			return action{actRemove, id}
		}
	}
	return action{}
}

// promote makes the first ready server a voter.
func promote(want target, have replicas) action {
	for _, id := range want.voters {
		if have.ready(id) && have.quorumWithOneMore() {
			return action{actPromote, id}
		}
	}
	return action{}
}

// add adds the first server that is missing and runs the group: one that does not
// run it yet would only make the leader back off.
func add(want target, have replicas) action {
	for _, id := range slices.Concat(want.voters, want.followers) {
		h := have.health[id]
		if !slices.Contains(have.voters, id) && !slices.Contains(have.followers, id) && h.recent && h.running {
			return action{actAdd, id}
		}
	}
	return action{}
}

// removeExtra removes servers that the target does not name, voters only when all
// wanted ones vote, and this leader last.
func removeExtra(want target, have replicas) action {
	for _, id := range have.followers {
		if !slices.Contains(want.voters, id) && !slices.Contains(want.followers, id) {
			return action{actRemove, id}
		}
	}
	if len(want.voters) == 0 {
		return action{}
	}
	for _, id := range want.voters {
		if !slices.Contains(have.voters, id) {
			return action{}
		}
	}
	for _, id := range have.voters {
		if id != have.self && !slices.Contains(want.voters, id) && have.quorumWithout(id) {
			return action{actRemove, id}
		}
	}
	if slices.Contains(want.voters, have.self) {
		return action{}
	}
	return stepAside(want, have)
}

// stepAside takes this leader out of the group: by a successor that then removes
// it, or, where there is none to be had, by its own hand. The group is without a
// leader for an election then.
func stepAside(want target, have replicas) action {
	if !have.stuck {
		return handOver(want, have)
	}
	if have.quorumWithout(have.self) {
		return action{actRemove, have.self}
	}
	return action{}
}

// handOver gives the leadership to a wanted voter that can take it, so that the
// new leader can remove this one.
func handOver(want target, have replicas) action {
	for _, id := range want.voters {
		h := have.health[id]
		if id != have.self && slices.Contains(have.voters, id) && h.recent && h.caughtUp {
			return action{actHandOver, id}
		}
	}
	return action{}
}

// ready reports whether id can become a voter at once.
func (r replicas) ready(id string) bool {
	h := r.health[id]
	return slices.Contains(r.followers, id) && h.recent && h.running && h.caughtUp
}

// answering counts the voters that answer, this leader included.
func (r replicas) answering() int {
	n := 0
	for _, id := range r.voters {
		if id == r.self || r.health[id].recent {
			n++
		}
	}
	return n
}

// quorumWithOneMore reports whether a quorum answers after one that answers was made
// a voter; quorumWithout, after id was removed as one.
func (r replicas) quorumWithOneMore() bool {
	return r.answering()+1 >= (len(r.voters)+1)/2+1
}

func (r replicas) quorumWithout(id string) bool {
	left := r.answering()
	if id == r.self || r.health[id].recent {
		left--
	}
	return len(r.voters) > 1 && left >= (len(r.voters)-1)/2+1
}
