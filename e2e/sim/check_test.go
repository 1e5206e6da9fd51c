package sim

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/e2e/model"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
)

// observe watches leaders and digests until stop is closed.
func (w *world) observe() {
	w.busy.Go(func() {
		for {
			select {
			case <-w.stop:
				return
			case <-time.After(30 * time.Millisecond):
			}
			for _, l := range w.running() {
				w.look(l)
			}
		}
	})
}

// look checks one node: no term has two leaders, and equal indexes have equal digests.
func (w *world) look(l *life) {
	for _, g := range l.node.Host().Groups() {
		now := g.Leadership()
		leader, term := now.Leader, now.Term
		if now.Role == raft.Leader && leader == "" {
			leader = raftnode.ServerID(l.node.Status().ServerID) // it knows before it is told
		}
		index, digest := g.Machine().Digest()
		w.mu.Lock()
		at, state := termOf{g.ID(), term}, indexOf{g.ID(), index}
		was, known := w.leaders[at]
		had, seen := w.digests[state]
		if leader != "" {
			w.leaders[at] = string(leader)
		}
		w.digests[state] = digest
		w.mu.Unlock()
		if known && leader != "" && was != string(leader) {
			w.problem("term %d of group %d has leaders %s and %s", term, g.ID(), was, leader)
		}
		if seen && had != digest {
			w.problem("group %d differs at index %d: %s has %x, another replica %x", g.ID(), index, l.machine.name, digest, had)
		}
	}
}

// converge waits, at rest, until all nodes serve and all replicas are equal.
func (w *world) converge() bool {
	return w.eventually(60*time.Second, "all nodes serve", w.serving) &&
		w.eventually(20*time.Second, "a write through every node", w.probe) &&
		w.eventually(30*time.Second, "equal replicas", w.equal)
}

func (w *world) serving() error {
	cluster := ""
	for _, m := range w.machines {
		l := m.life.Load()
		switch {
		case l == nil:
			return fmt.Errorf("%s is off", m.name)
		case l.gaveUp():
			return fmt.Errorf("%s gave up: %w", m.name, l.err)
		case !l.node.CaughtUp():
			return fmt.Errorf("%s is not caught up", m.name)
		}
		id := l.node.Status().ClusterID
		if cluster != "" && id != cluster {
			w.problem("%s belongs to cluster %s, another node to %s", m.name, id, cluster)
		}
		cluster = id
	}
	return nil
}

// probe writes to all groups through every node.
func (w *world) probe() error {
	for _, l := range w.running() {
		c := &client{w: w, life: l, sess: l.node.Router().NewSession()}
		var ops []partitions.Op
		for i := range 40 {
			stamp := protocol.Timestamp{Millis: time.Now().UnixMilli(), NodeID: "probe"}
			ops = append(ops, partitions.Op{
				Map: "probes", Key: fmt.Sprint(i), Record: protocol.Record{Value: encode("v"), Timestamp: stamp},
			})
		}
		if _, err := c.send(ops); err != nil {
			return fmt.Errorf("through %s: %w", l.machine.name, err)
		}
	}
	return nil
}

func (w *world) equal() error {
	type at struct{ index, digest uint64 }
	first := map[uint32]at{}
	for _, l := range w.running() {
		for _, g := range l.node.Host().Groups() {
			index, digest := g.Machine().Digest()
			if known, ok := first[g.ID()]; ok && known != (at{index, digest}) {
				return fmt.Errorf("group %d is at %d on %s and at %d elsewhere", g.ID(), index, l.machine.name, known.index)
			}
			first[g.ID()] = at{index, digest}
		}
	}
	return nil
}

// replicas are the states that the replicas hold: state i has, of every group, replica
// i of those that there are.
func (w *world) replicas() map[string]model.State {
	states := map[string]model.State{}
	held := map[uint32]int{}
	for _, l := range w.running() {
		for _, g := range l.node.Host().Groups() {
			name := fmt.Sprintf("replica %d", held[g.ID()])
			held[g.ID()]++
			if states[name] == nil {
				states[name] = model.State{}
			}
			w.read(g.Machine(), states[name])
		}
	}
	for name, n := range held {
		if n != min(3, len(w.machines)) && name != 0 {
			w.problem("group %d has %d replicas", name, n)
		}
	}
	delete(states, "replica 3") // the system group has more replicas and no records
	delete(states, "replica 4")
	return states
}

type scanner interface {
	Scan(mapName, from string, fn func(key string, rec protocol.Record) bool) (uint64, error)
}

func (w *world) read(machine any, into model.State) {
	for _, name := range []string{"m0", "m1", registerMap} {
		if into[name] == nil {
			into[name] = map[string]string{}
		}
		_, err := machine.(scanner).Scan(name, "", func(key string, rec protocol.Record) bool {
			if !rec.IsTombstone() {
				into[name][key] = decode(rec.Value)
			}
			return true
		})
		if err != nil {
			w.problem("scan of %s: %v", name, err)
		}
	}
}

// describe adds the groups of all nodes to the schedule.
func (w *world) describe() {
	for _, l := range w.running() {
		for _, g := range l.node.Host().Groups() {
			s := g.Status()
			w.note("%s group %d: %s of term %d, leader %s, commit %d, applied %d, log %d to %d, digest %x, voters %v, nonvoters %v",
				l.machine.name, s.Group, s.Role, s.Term, s.Leader, s.CommitIndex, s.AppliedIndex, s.FirstLog, s.LastLog, s.Digest, s.Voters, s.Nonvoters)
		}
	}
}

// check compares everything that was acknowledged with every replica, at rest.
func (w *world) check(watchers []*watcher) {
	states := w.replicas()
	called := w.registers.Now()
	for name, state := range states {
		for i := range registerKeys {
			key := fmt.Sprintf("r%d", i)
			w.registers.Read(1000, key, state[registerMap][key], called, w.registers.Now())
		}
		delete(states[name], registerMap)
	}
	problems := model.Check(w.history, states)
	if len(problems) > 0 {
		w.describe()
	}
	for _, p := range problems {
		w.problem("%s", p)
	}
	w.checkSets()
	w.checkLocks()
	w.checkTopics()
	for _, s := range watchers {
		s.compare(states["replica 0"]["m0"])
	}
}
