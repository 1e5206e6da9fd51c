package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorate/quorate/e2e/fault"
)

// shape is a set of directed links.
type shape struct {
	about string
	links []fault.Link
}

// shape chooses links to be cut, so that one node, some nodes or single directions are
// separated from others.
func (s *storm) shape(rng *rand.Rand) shape {
	nodes := s.present()
	rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	half := len(nodes) / 2
	switch rng.IntN(7) {
	case 0, 1:
		return both("isolate "+nodes[0], nodes[:1], nodes[1:])
	case 2:
		return both(fmt.Sprint("halves ", nodes[:half]), nodes[:half], nodes[half:])
	case 3:
		return shape{"deaf " + nodes[0], between(nodes[1:], nodes[:1])}
	case 4:
		return shape{"mute " + nodes[0], between(nodes[:1], nodes[1:])}
	case 5:
		// The last node sees all others, which do not see across.
		last := len(nodes) - 1
		return both("bridge "+nodes[last], nodes[:half], nodes[half:last])
	default:
		ring := shape{about: fmt.Sprint("ring ", nodes)}
		for i, from := range nodes {
			for j, to := range nodes {
				next, previous := (i+1)%len(nodes), (i+len(nodes)-1)%len(nodes)
				// With three nodes everybody is a neighbour: one direction is cut.
				if j != i && j != next && (j != previous || len(nodes) == 3) {
					ring.links = append(ring.links, fault.Link{From: from, To: to})
				}
			}
		}
		return ring
	}
}

func both(about string, a, b []string) shape {
	return shape{about, append(between(a, b), between(b, a)...)}
}

func between(from, to []string) (list []fault.Link) {
	for _, f := range from {
		for _, t := range to {
			list = append(list, fault.Link{From: f, To: t})
		}
	}
	return list
}

// set gives all links of the shape the same conditions.
func (s *storm) set(on shape, c fault.Conditions) error {
	var errs []error
	for _, l := range on.links {
		errs = append(errs, s.cluster.Network.Set(l, c))
	}
	return errors.Join(errs...)
}

func strikeSplit(s *storm, rng *rand.Rand) *stroke {
	cut := s.shape(rng)
	return &stroke{
		about: cut.about,
		begin: func() error { return s.set(cut, fault.Conditions{Cut: true}) },
		end:   func() error { return s.set(cut, fault.Conditions{}) },
	}
}

// strikeSlow delays and throttles the links of one node, or of all.
func strikeSlow(s *storm, rng *rand.Rand) *stroke {
	c := fault.Conditions{Delay: time.Duration(rng.IntN(400)) * time.Millisecond, Jitter: time.Duration(1+rng.IntN(100)) * time.Millisecond}
	if rng.IntN(3) == 0 {
		c = fault.Conditions{BytesPerSecond: 64 << 10}
	}
	nodes := s.present()
	victim := nodes[rng.IntN(len(nodes))]
	about, set := victim, func(c fault.Conditions) error { return s.cluster.Network.Isolate(victim, c) }
	if rng.IntN(2) == 0 {
		about, set = "all", func(c fault.Conditions) error {
			var errs []error
			for _, n := range nodes {
				errs = append(errs, s.cluster.Network.Isolate(n, c))
			}
			return errors.Join(errs...)
		}
	}
	return &stroke{
		about: about + " " + c.String(),
		begin: func() error { return set(c) },
		end:   func() error { return set(fault.Conditions{}) },
	}
}

// strikeFlap cuts and mends again every 200 ms.
func strikeFlap(s *storm, rng *rand.Rand) *stroke {
	cut := s.shape(rng)
	down := false
	return s.repeating("flapping "+cut.about, 200*time.Millisecond, func() error {
		down = !down
		return s.set(cut, fault.Conditions{Cut: down})
	}, func() error { return s.set(cut, fault.Conditions{}) })
}

// strikeReset resets the connections of links at random.
func strikeReset(s *storm, rng *rand.Rand) *stroke {
	nodes := s.present()
	return s.repeating("connections", 300*time.Millisecond, func() error {
		i := rng.IntN(len(nodes))
		j := (i + 1 + rng.IntN(len(nodes)-1)) % len(nodes)
		s.cluster.Network.Reset(fault.Link{From: nodes[i], To: nodes[j]})
		return nil
	}, func() error { return nil })
}

// repeating is a fault that does something again and again.
func (s *storm) repeating(about string, every time.Duration, do, mend func() error) *stroke {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var failed error
	return &stroke{
		about: about,
		begin: func() error {
			wg.Go(func() {
				ticker := time.NewTicker(every)
				defer ticker.Stop()
				for failed == nil {
					select {
					case <-ticker.C:
						failed = do()
					case <-stop:
						return
					}
				}
			})
			return nil
		},
		end: func() error {
			close(stop)
			wg.Wait()
			return errors.Join(failed, mend())
		},
	}
}
