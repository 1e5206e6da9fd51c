package chaos

import (
	"errors"
	"math/rand/v2"

	"github.com/quorate/quorate/e2e/harness"
)

// groups is the number of data groups of a cluster.
const groups = 6

// victims chooses one node, the leader of a group, most nodes, or all of them.
func (s *storm) victims(rng *rand.Rand) (nodes []*harness.Node, about string) {
	all := s.cluster.Nodes()
	n := 1
	switch d := rng.IntN(20); {
	case d < 6:
		if leader := s.leader(1 + uint32(rng.IntN(groups))); leader != nil {
			return []*harness.Node{leader}, "leader " + leader.Name
		}
	case d < 9:
		n = len(all)/2 + 1
	case d < 11:
		n = len(all)
	}
	for _, i := range rng.Perm(len(all))[:n] {
		nodes = append(nodes, all[i])
		about += " " + all[i].Name
	}
	return nodes, about[1:]
}

// exitRefused is the exit code of a node that the cluster refuses. It is no fault of a node
// whose predecessor under the same name was not known to be dead in time.
const exitRefused = 3

// revive starts nodes that have ended by themselves, as a supervisor does. It is a problem,
// unless they were refused.
func (s *storm) revive() {
	for _, n := range s.cluster.Nodes() {
		if n.Running() {
			continue
		}
		if code := n.AwaitExit(); code != exitRefused {
			s.problem("%s has ended by itself with code %d: %s", n.Name, code, n.LogTail(5))
		}
		n.Start()
	}
}

// leader is the node that leads a group, nil if nobody knows one.
func (s *storm) leader(group uint32) *harness.Node {
	for _, n := range s.cluster.Running() {
		status, err := n.Status()
		if err != nil {
			continue
		}
		for _, candidate := range s.cluster.Nodes() {
			if candidate.Name == status.Leader(group) {
				return candidate
			}
		}
	}
	return nil
}

// strikeKill kills processes and starts them again.
func strikeKill(s *storm, rng *rand.Rand) *stroke {
	victims, about := s.victims(rng)
	return &stroke{
		about: about,
		begin: func() error { return each(victims, (*harness.Node).Kill) },
		end:   func() error { return each(victims, (*harness.Node).Start) },
	}
}

// strikePause stops processes and lets them go on.
func strikePause(s *storm, rng *rand.Rand) *stroke {
	victims, about := s.victims(rng)
	return &stroke{
		about: about,
		begin: func() error { return each(victims, (*harness.Node).Pause) },
		end:   func() error { return each(victims, (*harness.Node).Resume) },
	}
}

// each does something with all nodes, also if it fails with some.
func each(nodes []*harness.Node, do func(*harness.Node)) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, guard(func() { do(n) }))
	}
	return errors.Join(errs...)
}
