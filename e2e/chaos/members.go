package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quorate/quorate/e2e/harness"
)

// anyNode chooses one node.
func (s *storm) anyNode(rng *rand.Rand) *harness.Node {
	nodes := s.cluster.Nodes()
	return nodes[rng.IntN(len(nodes))]
}

// strikeDrain has a node end in order and starts it again.
func strikeDrain(s *storm, rng *rand.Rand) *stroke {
	n := s.anyNode(rng)
	return &stroke{
		about: n.Name,
		begin: func() error {
			var code int
			if err := guard(func() { code, _ = n.Stop() }); err != nil {
				n.Kill() // it takes long: the machine is busy
				return nil
			}
			if code != 0 {
				s.problem("%s ends with code %d after SIGTERM: %s", n.Name, code, n.LogTail(5))
			}
			return nil
		},
		end: func() error { n.Start(); return nil },
	}
}

// strikeWipe kills a node and takes its disk. What the node held must be on all others
// again before the next one: the loss of two disks of three is nothing that a cluster
// survives.
func strikeWipe(s *storm, rng *rand.Rand) *stroke {
	n := s.anyNode(rng)
	if s.cluster.Formed() != nil {
		return nil
	}
	return &stroke{
		about: n.Name,
		begin: func() error { n.Kill(); n.Wipe(); return nil },
		end:   func() error { n.Start(); return nil },
	}
}

// leaveTime is how long a node may take to leave; then it is taken out like a dead one.
const leaveTime = 30 * time.Second

// strikeLeave has a node leave for good, and its name come back with an empty disk.
func strikeLeave(s *storm, rng *rand.Rand) *stroke {
	n := s.anyNode(rng)
	if s.cluster.Formed() != nil {
		return nil
	}
	return &stroke{
		about: n.Name,
		begin: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
			defer cancel()
			_, err := n.Tool(ctx, "leave")
			for err == nil && n.Running() && ctx.Err() == nil {
				calm(ctx, 50*time.Millisecond)
			}
			if n.Running() {
				n.Kill()
			}
			n.Wipe()
			return nil
		},
		end: func() error { n.Start(); return nil },
	}
}

// strikeTransfer hands leaderships around.
func strikeTransfer(s *storm, rng *rand.Rand) *stroke {
	return s.repeating("leaderships", time.Second, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		// A refusal is an answer: the group may be between leaders, the node cut off.
		_, _ = s.anyNode(rng).Tool(ctx, "transfer", fmt.Sprint(rng.IntN(groups+1)), s.anyNode(rng).Name)
		return nil
	}, func() error { return nil })
}

// guests is how many nodes more than the cluster has can join it.
const guests = 2

// strikeGrow has one or two more nodes join, which take over replicas of some groups, and
// leave for good. They must be gone before any other node is struck: together with that one
// they may hold most of a group.
func strikeGrow(s *storm, rng *rand.Rand) *stroke {
	visitors := s.cluster.Guests()[:1+rng.IntN(guests)]
	if s.cluster.Formed() != nil {
		return nil
	}
	return &stroke{
		about: fmt.Sprintf("by %d", len(visitors)),
		begin: func() error {
			s.visitedBy(visitors)
			return each(visitors, (*harness.Node).Start)
		},
		end: func() error {
			defer s.visitedBy(nil)
			return each(visitors, s.seeOff)
		},
	}
}

// seeOff has a guest leave. It is a problem if it does not, although nothing but the links is
// in its way.
func (s *storm) seeOff(n *harness.Node) {
	ctx, cancel := context.WithTimeout(context.Background(), stuckTime)
	defer cancel()
	for n.Running() && ctx.Err() == nil {
		_, err := n.Tool(ctx, "leave")
		if calm(ctx, 200*time.Millisecond); ctx.Err() != nil && n.Running() {
			s.problem("%s does not leave: %v: %s", n.Name, err, n.LogTail(5))
			n.Kill()
		}
	}
	if code := n.AwaitExit(); code != 0 && code != exitRefused {
		s.problem("%s ends with code %d after it left: %s", n.Name, code, n.LogTail(5))
	}
	n.Wipe()
}
