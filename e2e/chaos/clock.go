package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/quorate/quorate/e2e/harness"
)

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

// strikeDrift has the wall clock of a node run 5 % too fast or too slow, which it makes up for
// when it ends.
func strikeDrift(s *storm, rng *rand.Rand) *stroke {
	const every, step = 100 * time.Millisecond, 5 // of 100
	n, slow := s.anyNode(rng), rng.IntN(2) == 0
	offset, about := int64(0), n.Name+" fast"
	if slow {
		about = n.Name + " slow"
	}
	return s.repeating(about, every, func() error {
		if offset += step; slow {
			offset -= 2 * step
		}
		return setClock(n, offset)
	}, func() error { return setClock(n, 0) })
}
