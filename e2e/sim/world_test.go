package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/e2e/model"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

var (
	seedFlag    = flag.Uint64("sim.seed", 0, "seed of the first history; 0 chooses one")
	runsFlag    = flag.Int("sim.runs", 0, "number of random histories; 0 is a short run")
	minutesFlag = flag.Int("sim.minutes", 1, "virtual minutes of faults in a history")
	paceFlag    = flag.Duration("sim.pace", 30*time.Millisecond, "mean virtual time between two operations of a client")
	calmFlag    = flag.Duration("sim.calm", 1250*time.Millisecond, "mean virtual time between two faults")
	nodesFlag   = flag.Int("sim.nodes", 0, "number of nodes; 0 leaves it to the seed")
	groupsFlag  = flag.Int("sim.groups", 6, "number of data groups")
	logFlag     = flag.Bool("sim.log", false, "print the logs of the nodes")
)

// world is one simulated cluster and what is known about it.
type world struct {
	seed      uint64
	rng       *rand.Rand // of the schedule; one goroutine
	net       *memnet.Network
	seeds     []string
	machines  []*machine
	history   *model.History
	registers *model.Registers
	sets      ledger
	guard     guard
	gazette   *gazette
	began     time.Time
	clients   int // started so far
	// counts are of operations, faults of what struck; lasted is the length of the
	// history.
	counts, faults tally
	lasted         time.Duration
	// null is a cluster that keeps nothing on disk. wiped is set when a disk was wiped in
	// this round.
	null, wiped bool

	// stop ends the goroutines of the load and of the observer.
	stop chan struct{}
	busy sync.WaitGroup

	// mu protects the fields below.
	mu       sync.Mutex
	leaders  map[termOf]string
	digests  map[indexOf]uint64
	schedule []string
	problems []string
}

type termOf struct {
	group uint32
	term  uint64
}

type indexOf struct {
	group uint32
	index uint64
}

func newWorld(seed uint64, nodes int, null bool) *world {
	ceiling := protocol.LevelPersisted
	if null {
		ceiling = protocol.LevelReplicated
	}
	w := &world{
		null: null, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), net: memnet.New(seed),
		history: model.NewHistory(ceiling), registers: model.NewRegisters(), began: time.Now(),
		gazette: newGazette(), stop: make(chan struct{}), leaders: map[termOf]string{}, digests: map[indexOf]uint64{},
	}
	w.calm()
	for i := range nodes {
		w.seeds = append(w.seeds, fmt.Sprintf("n%d:7000", i+1))
		w.add(fmt.Sprintf("n%d", i+1))
	}
	return w
}

// calm gives all links the latency of a rack.
func (w *world) calm() {
	w.net.SetLinks(memnet.Link{Latency: 200 * time.Microsecond, Jitter: 300 * time.Microsecond})
}

func (w *world) logger(name string) hclog.Logger {
	if !*logFlag {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: name, Level: hclog.Debug, TimeFormat: "04:05.000"})
}

// note adds a line to the schedule, which a failure prints.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf("%8.3fs  %s", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
	w.schedule = append(w.schedule, line)
}

// problem records a violation.
func (w *world) problem(format string, args ...any) {
	w.note("PROBLEM: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// running are the machines with a living node.
func (w *world) running() []*life {
	var lives []*life
	for _, m := range w.machines {
		if l := m.life.Load(); l != nil && !l.dead.Load() {
			lives = append(lives, l)
		}
	}
	return lives
}

// eventually polls until ok returns nil, or records a problem after limit.
func (w *world) eventually(limit time.Duration, what string, ok func() error) bool {
	for start := time.Now(); ; {
		err := ok()
		if err == nil {
			return true
		}
		if time.Since(start) > limit {
			w.problem("not within %s: %s: %v", limit, what, err)
			return false
		}
		pause(20 * time.Millisecond)
	}
}

// spread is a random time whose mean is the given one.
func spread(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(2*mean) + 1))
}

// rest is the time until a client does something again, factor times the pace.
func (c *client) rest(factor int) time.Duration {
	return spread(c.rng, time.Duration(factor)**paceFlag)
}

// pause lets virtual time pass.
func pause(d time.Duration) { <-time.After(d) }

// report fails the test with everything that helps to repeat it.
func (w *world) report(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.problems) == 0 {
		return
	}
	t.Logf("repeat with -sim.seed %d; schedule:", w.seed)
	for _, line := range w.schedule {
		t.Log(line)
	}
	for i, p := range w.problems {
		if i == 20 {
			t.Errorf("and %d more", len(w.problems)-i)
			break
		}
		t.Error(p)
	}
}
