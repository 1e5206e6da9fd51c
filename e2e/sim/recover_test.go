package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/e2e/model"
	"github.com/quorate/quorate/raftnode/logstore"
)

// TestASurvivorGoesOnAlone runs random histories in which two of three nodes are lost for
// good, often when the third is behind: it is recovered, over a disk that fails once,
// grows to three nodes again, and no token is given twice.
func TestASurvivorGoesOnAlone(t *testing.T) {
	runs, seed := max(2, *runsFlag), *seedFlag
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	for i := range runs {
		seed := seed + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			var w *world
			synctest.Test(t, func(*testing.T) {
				w = newWorld(seed, 3, false)
				w.loseQuorum()
			})
			w.report(t)
		})
	}
}

// loseQuorum is the history of one cluster.
func (w *world) loseQuorum() {
	defer func() {
		for _, m := range w.machines {
			m.kill()
		}
	}()
	for _, m := range w.machines {
		m.start()
	}
	if !w.converge() {
		return
	}
	survivor := w.anyMachine()
	w.busyFor(time.Duration(5+w.rng.IntN(15))*time.Second, 3, func() {
		w.isolate(survivor)
		pause(time.Duration(w.rng.IntN(60_000)) * time.Millisecond) // longer than a lease
	})
	before, applied := w.holds(survivor)
	for _, i := range w.rng.Perm(len(w.machines)) {
		w.machines[i].kill()
	}
	w.net.Heal()
	w.calm()
	for _, m := range w.machines {
		m.uncut()
		if m != survivor {
			m.wipe()
		}
	}
	if !w.recover(survivor, before, applied) {
		return
	}
	// What the clients know beside tokens may be lost, and terms and indexes come again.
	w.guard.totals, w.guard.maybe = nil, 0
	w.leaders, w.digests = map[termOf]string{}, map[indexOf]uint64{}
	for _, m := range w.machines {
		if m != survivor {
			m.start()
		}
	}
	if w.converge() {
		// The nodes that are lost hold locks for 30 s, and longer where leaderships move.
		grants := w.guard.grants
		w.busyFor(time.Minute, 1, func() {})
		if w.guard.grants == grants {
			w.problem("nobody got the lock after the recovery")
		}
		w.converge()
	}
}

// busyFor has so many clients write, and others lock, for a time, and then until last
// returns.
func (w *world) busyFor(length time.Duration, writers int, last func()) {
	w.stop = make(chan struct{})
	w.startLoad(writers)
	w.startLockers()
	w.observe()
	pause(length)
	last()
	close(w.stop)
	w.busy.Wait()
}

// holds is what a node has of the data, and how far it has applied each group.
func (w *world) holds(m *machine) (model.State, map[uint32]uint64) {
	state, applied := model.State{}, map[uint32]uint64{}
	for _, g := range m.life.Load().node.Host().Groups() {
		w.read(g.Machine(), state)
		applied[g.ID()] = g.Status().AppliedIndex
	}
	return state, applied
}

// recover has the survivor go on alone and serve. What it held is there; where its log
// goes no further than that, nothing else is.
func (w *world) recover(m *machine, before model.State, applied map[uint32]uint64) bool {
	m.fs.FailNext(logstore.OpSync, errors.New("injected"))
	if r, err := m.recover(); err == nil || r != nil && r.Done {
		w.problem("recovered over a disk that fails: %+v", r)
	}
	m.fs.FailNext(logstore.OpSync, nil)
	m.fs.CrashTorn(w.rng.Uint64())
	r, err := m.recover()
	if err != nil || !r.Done {
		w.problem("%s is not recovered: %+v, %v", m.name, r, err)
		return false
	}
	exact := true
	for _, g := range r.Groups {
		w.note("group %d: %+v, %d were applied", g.Group, g, applied[g.Group])
		exact = exact && g.LastIndex <= applied[g.Group]
		if g.LastIndex < applied[g.Group] {
			w.problem("group %d ends at %d, and %d were applied", g.Group, g.LastIndex, applied[g.Group])
		}
	}
	m.start()
	if !w.eventually(60*time.Second, "the survivor serves", func() error {
		if !m.life.Load().node.CaughtUp() {
			return errors.New("not caught up")
		}
		return nil
	}) {
		return false
	}
	after, _ := w.holds(m)
	for name, records := range before {
		if exact && !maps.Equal(records, after[name]) {
			w.problem("map %s: %s", name, firstDifference(after[name], records))
		}
	}
	return true
}

// recover runs quorate recover on a machine that is off.
func (m *machine) recover() (*quorate.Recovery, error) {
	l := &life{machine: m}
	deps := quorate.NodeDeps{
		Logger: m.w.logger(m.name), Network: m.w.net.Host(m.name), LogFS: m.fs, Store: &fencedStore{Store: m.store, life: l},
		Physical: func() int64 { return time.Now().UnixMilli() + m.skew.Load() },
	}
	return quorate.RecoverNode(context.Background(), m.config(), deps, quorate.RecoverOptions{Confirm: true})
}
