package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/e2e/chaos/check"
	"github.com/quorate/quorate/e2e/harness"
)

// nemesis is a kind of fault.
type nemesis struct {
	// lane is what it strikes. Faults of different lanes strike at the same time, those of
	// one lane one after the other.
	lane lane
	// needs is what the server must have: a command, the tag stress, or nothing.
	needs string
	// longest is how long it lasts at most.
	longest time.Duration
	// strike chooses a fault. Nil means that there is none to be had now.
	strike func(s *storm, rng *rand.Rand) *stroke
}

type lane string

const (
	processes lane = "processes"
	links     lane = "links"
)

// stroke is one chosen fault.
type stroke struct {
	about      string
	begin, end func() error
}

// nemeses are the kinds of faults by name.
var nemeses = map[string]nemesis{
	"kill":     {processes, "", 15 * time.Second, strikeKill},
	"pause":    {processes, "", 36 * time.Second, strikePause},
	"drain":    {processes, "", 5 * time.Second, strikeDrain},
	"wipe":     {processes, "", 5 * time.Second, strikeWipe},
	"leave":    {processes, "", 5 * time.Second, strikeLeave},
	"grow":     {processes, "", 20 * time.Second, strikeGrow},
	"transfer": {processes, "transfer", 8 * time.Second, strikeTransfer},
	"clock":    {processes, "stress", 12 * time.Second, strikeClock},
	"drift":    {processes, "stress", 15 * time.Second, strikeDrift},
	"split":    {links, "", 20 * time.Second, strikeSplit},
	"flap":     {links, "", 8 * time.Second, strikeFlap},
	"slow":     {links, "", 12 * time.Second, strikeSlow},
	"reset":    {links, "", 8 * time.Second, strikeReset},
	// It has rounds of its own.
	recoverName: {"", recoverName, 0, nil},
}

// storm strikes a cluster during one round.
type storm struct {
	run     *run
	cluster *harness.Cluster
	problem func(format string, args ...any)

	// mu protects the fields below: the faults so far, and the guests in the cluster.
	mu       sync.Mutex
	bands    []check.Band
	visitors []*harness.Node
}

// present are the names of the nodes in the cluster, guests included.
func (s *storm) present() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range slices.Concat(s.cluster.Nodes(), s.visitors) {
		names = append(names, n.Name)
	}
	return names
}

func (s *storm) visitedBy(visitors []*harness.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visitors = visitors
}

// rage strikes until ctx ends. All faults have ended when it returns.
func (s *storm) rage(ctx context.Context, seed int64, names []string) error {
	var wg sync.WaitGroup
	lanes := []lane{processes, links}
	errs := make([]error, len(lanes))
	for i, l := range lanes {
		mine := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return nemeses[name].lane != l })
		if len(mine) == 0 {
			continue
		}
		rng := rand.New(rand.NewPCG(uint64(seed), hash(string(l))))
		wg.Go(func() { errs[i] = s.strikes(ctx, rng, mine) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// strikes has faults of one lane strike one after the other.
func (s *storm) strikes(ctx context.Context, rng *rand.Rand, names []string) error {
	for {
		if !calm(ctx, time.Second+time.Duration(rng.Int64N(int64(3*time.Second)))) {
			return nil
		}
		name := names[rng.IntN(len(names))]
		if nemeses[name].lane == processes {
			s.revive()
		}
		part := rng.Float64()
		lasts := time.Duration(part * part * float64(nemeses[name].longest)) // rather short
		var f *stroke
		if err := guard(func() { f = nemeses[name].strike(s, rng) }); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if f == nil {
			continue
		}
		if err := s.strike(ctx, name, f, lasts); err != nil {
			return fmt.Errorf("%s %s: %w", name, f.about, err)
		}
	}
}

func (s *storm) strike(ctx context.Context, name string, f *stroke, lasts time.Duration) (err error) {
	band := check.Band{Name: name, About: f.about, From: s.run.now()}
	if g := guard(func() { err = f.begin() }); g != nil || err != nil {
		return firstOf(g, err)
	}
	calm(ctx, lasts)
	if g := guard(func() { err = f.end() }); g != nil || err != nil {
		return firstOf(g, err)
	}
	band.To = s.run.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bands = append(s.bands, band)
	return nil
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// calm lets d pass and reports whether ctx goes on.
func calm(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// counts counts the faults by kind.
func (s *storm) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[string]int)
	for _, b := range s.bands {
		counts[b.Name]++
	}
	return counts
}
