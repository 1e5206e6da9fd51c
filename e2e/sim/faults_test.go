package sim

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// fault is one kind of event of the schedule.
type fault struct {
	name   string
	weight int
	apply  func(w *world, m, other *machine)
}

// faults are everything that can happen. Network faults last until the next heal. A
// clock goes back by less than the drift that is believed: behind by more, a node takes
// the stamps of clients for the future and replaces them, which the model does not know.
func faults() []fault {
	return []fault{
		{"kill", 4, func(w *world, m, _ *machine) { w.unlessNull(m, m.kill) }},
		{"kill a majority", 1, func(w *world, _, _ *machine) { w.killSome(len(w.machines)/2 + 1) }},
		{"kill all", 1, func(w *world, _, _ *machine) { w.killSome(len(w.machines)) }},
		{"stop", 2, func(w *world, m, _ *machine) { w.unlessNull(m, m.stop) }},
		{"wipe", 1, func(w *world, m, _ *machine) { w.wipe(m) }},
		{"isolate", 4, func(w *world, m, _ *machine) { w.isolate(m) }},
		{"cut one way", 2, func(w *world, m, other *machine) { w.net.Cut(w.cut(), m.name, other.name) }},
		{"cut a link", 2, func(w *world, m, other *machine) { w.net.CutBoth(w.cut(), m.name, other.name) }},
		{"split in halves", 2, func(w *world, _, _ *machine) { w.split() }},
		{"flap", 1, func(w *world, m, other *machine) { w.flap(m, other) }},
		{"reset connections", 2, func(w *world, _, _ *machine) { w.net.ResetConns(0.5) }},
		{"bad links", 2, func(w *world, _, _ *machine) {
			w.net.SetLinks(memnet.Link{
				Latency: time.Duration(w.rng.IntN(50)) * time.Millisecond, Jitter: 50 * time.Millisecond, ResetRate: 0.005,
			})
		}},
		{"stall a disk", 2, func(w *world, m, _ *machine) {
			m.broken.Store(true)
			time.AfterFunc(time.Duration(w.rng.IntN(8000))*time.Millisecond, m.fs.StallSync())
		}},
		{"fail a disk", 1, func(w *world, m, _ *machine) {
			if w.null {
				return
			}
			m.broken.Store(true)
			m.fs.FailNext(logstore.OpSync, errors.New("injected"))
		}},
		{"step a clock", 2, func(w *world, m, _ *machine) { m.skew.Store(w.rng.Int64N(3_650_000) - 50_000) }},
		{"move leaders", 2, func(w *world, m, _ *machine) { m.handOver() }},
		{"heal", 14, func(w *world, _, _ *machine) { w.heal() }},
	}
}

// strike applies one random fault.
func (w *world) strike() {
	list, sum := faults(), 0
	for _, f := range list {
		sum += f.weight
	}
	pick := w.rng.IntN(sum)
	m, other := w.anyMachine(), w.anyMachine()
	for _, f := range list {
		if pick -= f.weight; pick < 0 {
			w.note("%s: %s %s", f.name, m.name, other.name)
			w.faults.add(f.name, 1)
			f.apply(w, m, other)
			return
		}
	}
}

func (w *world) anyMachine() *machine { return w.machines[w.rng.IntN(len(w.machines))] }

func (w *world) cut() memnet.Cut {
	return []memnet.Cut{memnet.Blackhole, memnet.Reset}[w.rng.IntN(2)]
}

// wipe empties the disk of one machine, once in a while and when all are well: the
// loss of two disks at a time is not survived, and not promised to be.
func (w *world) wipe(m *machine) {
	if w.heal(); w.wiped || w.serving() != nil {
		return
	}
	w.wiped = true
	m.kill()
	m.wipe()
	m.start()
}

// unlessNull ends a node. Without disks that is what wiping is with them, so it is done
// only when all are well.
func (w *world) unlessNull(m *machine, end func()) {
	if !w.null {
		end()
		return
	}
	if w.heal(); w.serving() == nil {
		end()
		m.start()
		w.eventually(60*time.Second, "a new node in place", w.serving)
	}
}

func (w *world) killSome(n int) {
	if w.null {
		return
	}
	for _, i := range w.rng.Perm(len(w.machines))[:n] {
		w.machines[i].kill()
	}
}

// isolate cuts a machine off from all others.
func (w *world) isolate(m *machine) {
	w.net.Isolate(w.cut(), m.name)
	if m.cut.Load()%2 == 0 {
		m.cut.Add(1)
	}
}

func (w *world) split() {
	var sides [2][]string
	for _, i := range w.rng.Perm(len(w.machines)) {
		side := w.rng.IntN(2)
		sides[side] = append(sides[side], w.machines[i].name)
	}
	w.net.Split(w.cut(), sides[0], sides[1])
}

// flap breaks a link again and again for a while.
func (w *world) flap(m, other *machine) {
	for range 6 {
		w.net.CutBoth(memnet.Reset, m.name, other.name)
		pause(time.Duration(w.rng.IntN(400)) * time.Millisecond)
		w.net.HealLink(m.name, other.name)
		w.net.HealLink(other.name, m.name)
		m.uncut()
		other.uncut()
		pause(time.Duration(w.rng.IntN(400)) * time.Millisecond)
	}
}

func (m *machine) uncut() {
	if m.cut.Load()%2 == 1 {
		m.cut.Add(1)
	}
}

// handOver moves the leaderships of a node to random others.
func (m *machine) handOver() {
	l := m.life.Load()
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, g := range l.node.Host().Groups() {
		voters := g.Status().Voters
		if g.IsLeader() && len(voters) > 0 {
			// The refusals are as good as the success.
			_ = g.TransferLeadership(ctx, raftnode.ServerID(voters[m.w.rng.IntN(len(voters))]))
		}
	}
}

// heal mends network, disks and clocks, and starts what is off.
func (w *world) heal() {
	w.net.Heal()
	w.calm()
	for _, m := range w.machines {
		m.uncut()
		m.skew.Store(0)
		m.fs.FailNext(logstore.OpSync, nil)
		l := m.life.Load()
		if l != nil && l.gaveUp() {
			if !m.broken.Load() {
				w.problem("%s gave up: %v", m.name, l.err)
			}
			m.kill()
			l = nil
		}
		if l == nil {
			m.start()
		}
	}
}
