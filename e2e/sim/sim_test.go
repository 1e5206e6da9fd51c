package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// shortRuns is the number of histories of an ordinary test run.
const shortRuns = 6

// TestNothingAcknowledgedIsLost runs random histories of clusters of three to five
// nodes: writes at all levels, stamped by clients and by the cluster, and faults of
// machines, network, disks and clocks. In the middle and at the end everything is
// mended, and then checked:
//
//   - every acknowledged write is on every replica, or a later one is;
//   - nothing is there that was refused or never written;
//   - unstamped writes took effect once, in an order that agrees with real time;
//   - replicas are equal, at any time at equal index; no term had two leaders;
//   - no two clients held the lock, its tokens ascended, and additions counted once;
//   - subscribers have seen what the state is;
//   - subscribers of topics got parts of one order, each message once and behind what its
//     publisher published before, and in quiet time all of them;
//   - a node that was cut off from all others acknowledged nothing that needs them;
//   - all nodes belong to one cluster and take writes again within 20 s.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	runs, seed := *runsFlag, *seedFlag
	if runs == 0 {
		runs = shortRuns
		if seed != 0 {
			runs = 1
		}
	}
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	for i := range runs {
		seed := seed + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { simulate(t, seed) })
	}
}

func simulate(t *testing.T, seed uint64) {
	var w *world
	began := time.Now()
	synctest.Test(t, func(*testing.T) {
		nodes := []int{3, 3, 3, 4, 5}[seed%5]
		if *nodesFlag > 0 {
			nodes = *nodesFlag
		}
		w = newWorld(seed, nodes, seed%7 == 0)
		w.live()
		w.lasted = time.Since(w.began)
	})
	if err := w.registers.Check(time.Minute); err != nil {
		w.problem("registers: %v", err)
	}
	w.report(t)
	sent, acknowledged, unknown := w.history.Count()
	w.counts.add("writes", sent)
	w.counts.add("grants", w.guard.grants)
	w.counts.add("additions", len(w.guard.totals))
	w.counts.add("terms", len(w.leaders))
	w.counts.add("deliveries", w.gazette.delivered())
	w.account()
	t.Logf("%d nodes, null %v: %d writes, %d acknowledged, %d unknown, %d terms, %d grants, %d additions, %d messages; %s in %.1f s",
		len(w.machines), w.null, sent, acknowledged, unknown, len(w.leaders), w.guard.grants, len(w.guard.totals), len(w.gazette.sent), w.lasted.Round(time.Second), time.Since(began).Seconds())
	if acknowledged < 100 && *paceFlag < time.Second {
		t.Error("the faults left no room for writes")
	}
}

// live is the history of one cluster, from forming to the last check.
func (w *world) live() {
	defer func() {
		for _, m := range w.machines {
			m.kill()
		}
	}()
	for _, i := range w.rng.Perm(len(w.machines)) {
		w.machines[i].start()
		pause(time.Duration(w.rng.IntN(500)) * time.Millisecond)
	}
	if !w.converge() {
		return
	}
	for range 2 {
		if !w.suffer(time.Duration(*minutesFlag) * time.Minute / 2) {
			return
		}
	}
}

// suffer writes and strikes for a time, then mends everything and checks.
func (w *world) suffer(length time.Duration) bool {
	w.stop, w.wiped = make(chan struct{}), false
	watchers := w.watchAll()
	w.startLoad(6)
	w.startLockers()
	w.startPublishers()
	w.observe()
	for end := time.Now().Add(length); time.Now().Before(end); {
		w.strike()
		pause(spread(w.rng, *calmFlag))
	}
	w.note("the end of the faults")
	w.heal()
	watchers = append(watchers, w.watchAll()...)
	pause(3 * time.Second)
	close(w.stop)
	w.busy.Wait()
	// What gave up because of its disk may have done so after the heal.
	w.heal()
	if !w.converge() {
		return false
	}
	w.check(watchers)
	return len(w.problems) == 0
}
