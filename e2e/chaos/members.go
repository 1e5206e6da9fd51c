package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// clockFile says by how much the clock of a node is off.
func clockFile(n *harness.Node) string { return filepath.Join(n.Dir(), "clock") }

// strikeClock steps the wall clock of one node or of all, by up to an hour.
func strikeClock(s *storm, rng *rand.Rand) *stroke {
	nodes, about := []*harness.Node{s.anyNode(rng)}, ""
	if rng.IntN(4) == 0 {
		nodes = s.cluster.Nodes()
	}
	offsets := make([]int64, len(nodes))
	for i, n := range nodes {
		offsets[i] = rng.Int64N(int64(1) << (4 + rng.IntN(19))) // milliseconds, small ones as likely as large
		if rng.IntN(2) == 0 {
			offsets[i] = -offsets[i]
		}
		about += fmt.Sprintf("%s by %d ms ", n.Name, offsets[i])
	}
	return &stroke{
		about: about,
		begin: func() error {
			for i, n := range nodes {
				if err := setClock(n, offsets[i]); err != nil {
					return err
				}
			}
			return nil
		},
		end: func() error {
			for _, n := range nodes {
				if err := setClock(n, 0); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func setClock(n *harness.Node, millis int64) error {
	file := clockFile(n)
	if err := os.WriteFile(file+".new", []byte(fmt.Sprint(millis)), 0o600); err != nil {
		return fmt.Errorf("clock of %s: %w", n.Name, err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("clock of %s: %w", n.Name, err)
	}
	return nil
}
