package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/hashicorp/raft"
)

// model is what a group must hold.
type model struct {
	first  uint64
	logs   []*raft.Log
	stable map[string]string
	hint   uint64 // upper bound of the hint that may be found
}

func newModel() model { return model{stable: map[string]string{}} }

func (m model) last() uint64 {
	if len(m.logs) == 0 {
		return 0
	}
	return m.first + uint64(len(m.logs)) - 1
}

func (m model) clone() model {
	m.logs = slices.Clone(m.logs)
	m.stable = maps.Clone(m.stable)
	return m
}

// with returns the model after logs were appended.
func (m model) with(logs []*raft.Log) model {
	m = m.clone()
	if len(m.logs) == 0 && len(logs) > 0 {
		m.first = logs[0].Index
	}
	m.logs = append(m.logs, logs...)
	return m
}

// cut returns the model with only the entries from first to last.
func (m model) cut(first, last uint64) model {
	m = m.clone()
	if first > last {
		m.first, m.logs = 0, nil
		return m
	}
	m.logs = m.logs[first-m.first : last-m.first+1]
	m.first = first
	return m
}

func (m model) set(keys map[string]string) model {
	m = m.clone()
	maps.Copy(m.stable, keys)
	return m
}

// check compares the group with the model.
func (m model) check(g *GroupLog) error {
	first := m.first
	if len(m.logs) == 0 {
		first = 0
	}
	if err := rangeError(g, first, m.last()); err != nil {
		return err
	}
	for _, want := range m.logs {
		var got raft.Log
		if err := g.GetLog(want.Index, &got); err != nil {
			return err
		}
		if !sameEntry(&got, want) {
			return fmt.Errorf("entry %d has term %d and %d bytes, want term %d and %d bytes",
				want.Index, got.Term, len(got.Data), want.Term, len(want.Data))
		}
	}
	if hint := g.CommitHint(); hint > m.hint {
		return fmt.Errorf("commit hint %d was never set", hint)
	}
	return m.checkStable(g)
}

func (m model) checkStable(g *GroupLog) error {
	for _, key := range []string{"a", "b", keyLastVoteTerm, keyLastVoteCand} {
		want, ok := m.stable[key]
		got, err := g.Get([]byte(key))
		if errors.Is(err, ErrKeyNotFound) == ok || !bytes.Equal(got, []byte(want)) {
			return fmt.Errorf("key %s is %q (%v), want %q", key, got, err, want)
		}
	}
	return nil
}

// driver makes random requests of one group and keeps the model of it. A request
// that failed leaves, in maybe, every state that it may have led to.
type driver struct {
	id    uint32
	rng   *rand.Rand
	term  uint64
	acked model
	maybe []model
}

func newDriver(id uint32, seed uint64) *driver {
	return &driver{id: id, rng: rand.New(rand.NewPCG(seed, uint64(id))), acked: newModel()}
}

// step makes one request. After an error the driver waits for resume.
func (d *driver) step(l *Log) error {
	g := l.Group(d.id)
	m := d.acked
	if m.last() > 0 && d.rng.IntN(4) == 0 {
		d.acked.hint = max(d.acked.hint, m.last())
		g.SetCommitHint(m.last())
	}
	switch n := d.rng.IntN(100); {
	case n < 60 || m.last() == 0:
		return d.append(g)
	case n < 70:
		first := m.first + d.rng.Uint64N(uint64(len(m.logs)+1))
		return d.try(func() error { return g.DeleteRange(m.first, first-1) }, m.cut(first, m.last()))
	case n < 78:
		last := m.last() - d.rng.Uint64N(uint64(len(m.logs)))
		return d.try(func() error { return g.DeleteRange(last, m.last()) }, m.cut(m.first, last-1))
	case n < 80:
		return d.try(func() error { return l.DropGroup(d.id) }, newModel())
	case n < 90:
		value := fmt.Sprint(d.rng.Uint64())
		key := []string{"a", "b"}[d.rng.IntN(2)]
		return d.try(func() error { return g.Set([]byte(key), []byte(value)) }, m.set(map[string]string{key: value}))
	default:
		return d.vote(g)
	}
}

// try runs a request that leads from the acked state to after, or does nothing, or
// gets as far as one of the steps.
func (d *driver) try(request func() error, after model, steps ...model) error {
	after.hint = max(after.hint, d.acked.hint)
	d.maybe = append([]model{d.acked, after}, steps...)
	if err := request(); err != nil {
		return err
	}
	d.acked, d.maybe = after, nil
	return nil
}

func (d *driver) append(g *GroupLog) error {
	next := d.acked.last() + 1
	if len(d.acked.logs) == 0 {
		next = 1 + d.rng.Uint64N(1000)
	}
	d.term++
	logs := entries(next, next+d.rng.Uint64N(8), d.term, d.rng.IntN(2500))
	var steps []model
	for i := range logs {
		steps = append(steps, d.acked.with(logs[:i]))
	}
	return d.try(func() error { return g.StoreLogs(logs) }, d.acked.with(logs), steps...)
}

func (d *driver) vote(g *GroupLog) error {
	d.term++
	candidate := fmt.Sprint("node", d.term)
	after := d.acked.set(map[string]string{
		keyLastVoteTerm: string(bigEndian(d.term)), keyLastVoteCand: candidate,
	})
	return d.try(func() error {
		return errors.Join(g.SetUint64([]byte(keyLastVoteTerm), d.term), g.Set([]byte(keyLastVoteCand), []byte(candidate)))
	}, after)
}

func bigEndian(v uint64) []byte {
	var b []byte
	for shift := 56; shift >= 0; shift -= 8 {
		b = append(b, byte(v>>shift))
	}
	return b
}

// resume verifies the group after a restart and takes over the state it is in.
func (d *driver) resume(l *Log) error {
	if len(d.maybe) == 0 {
		d.maybe = []model{d.acked}
	}
	var errs []error
	for _, m := range d.maybe {
		err := m.check(l.Group(d.id))
		if err == nil {
			d.acked, d.maybe = m, nil
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("group %d is in none of %d possible states, nearest: %w", d.id, len(errs), errs[0])
}
