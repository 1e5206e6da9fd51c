package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/e2e/chaos/check"
	"github.com/quorate/quorate/e2e/harness"
)

// workload is what the clients of one round do with one feature.
type workload interface {
	// base is the part that all workloads have in common.
	base() *load
	// clients start until busy ends; what only watches goes on until watching ends.
	start(busy, watching context.Context)
	// quiet reads every node when clients have ended and nothing is wrong any more. What it
	// finds wrong goes to the round; an error means that it could not be read.
	quiet(ctx context.Context) error
	// judge returns what is wrong with the history.
	judge(ops []check.Op) []string
}

// workloads make the workloads by name.
var workloads = map[string]func(l *load) workload{
	"register": newRegisters, "append": newLists, "set": newSets, "counter": newCounters, "lock": newLocks,
	"ormap": newTags, "live": newLive, "topic": newTopics,
}

// load is the part that all workloads have in common.
type load struct {
	round   *round
	name    string
	history *check.History
	// maps are the maps that it writes, whose roots must be equal in the end; true for
	// observed-remove maps.
	maps    map[string]bool
	clients int
	// done counts the operations that have changed something, unknown those of which it is
	// not known.
	done, unknown, total atomic.Int64
}

func (r *round) newLoad(name string) (*load, error) {
	head := check.Head{Workload: name, Round: r.number, Seed: r.seed, Repeat: r.repeat()}
	h, err := check.NewHistory(filepath.Join(r.dir, name+".jsonl"), head)
	if err != nil {
		return nil, err
	}
	return &load{round: r, name: name, history: h, maps: make(map[string]bool)}, nil
}

func (l *load) base() *load { return l }

// called is a name that no other round and workload has.
func (l *load) called(what string) string { return fmt.Sprint(l.round.tag, ".", l.name, ".", what) }

// mapCalled is the name of a map of the workload.
func (l *load) mapCalled(what string, sets bool) string {
	name := l.called(what)
	l.maps[name] = sets
	return name
}

// caller makes a client; it is bound to a node unless that is nil.
func (l *load) caller(bound *harness.Node) *caller {
	l.clients++
	return &caller{
		load: l, id: l.clients, name: l.called(fmt.Sprint("c", l.clients)), bound: bound,
		rng: rand.New(rand.NewPCG(uint64(l.round.seed), hash(l.name)+uint64(l.clients))),
	}
}

// hash tells workloads apart in random generators.
func hash(s string) (h uint64) {
	for _, c := range s {
		h = h*131 + uint64(c)
	}
	return h << 8
}

// each has n clients repeat step, with pauses, until busy ends.
func (l *load) each(busy context.Context, n int, step func(ctx context.Context, c *caller)) {
	for range n {
		c := l.caller(nil)
		l.round.busy.Go(func() {
			defer c.hangUp()
			for busy.Err() == nil {
				step(busy, c)
				c.rest(busy, l.round.run.cfg.Pause)
				if c.rng.IntN(60) == 0 {
					c.hangUp() // meets another node
				}
			}
		})
	}
}

// note adds an operation to the history.
func (l *load) note(op check.Op) {
	l.history.Add(op)
	l.total.Add(1)
	switch {
	case op.Kind == check.Publish: // nobody is told what becomes of it
	case op.Outcome == check.Unknown:
		l.unknown.Add(1)
	case op.Outcome == check.OK && op.Kind != check.Read && op.Kind != check.Local:
		l.done.Add(1)
	}
}

// finals lets a client that is bound to each node read until it has got an answer.
func (l *load) finals(ctx context.Context, read func(ctx context.Context, c *caller) error) error {
	for _, n := range l.round.cluster.Nodes() {
		c := l.caller(n)
		err := until(ctx, settleTime, func() error {
			if !c.connect(ctx) {
				return fmt.Errorf("%s takes no connection", n.Name)
			}
			return read(ctx, c)
		})
		c.hangUp()
		if err != nil {
			return fmt.Errorf("%s: read %s: %w", l.name, n.Name, err)
		}
	}
	return nil
}

// readAll is a linearizable read of a map for finals.
func readAll(mapName string, kinds ...check.Kind) func(ctx context.Context, c *caller) error {
	return func(ctx context.Context, c *caller) error {
		op, ok := c.read(ctx, check.Read, mapName)
		if !ok {
			return fmt.Errorf("no answer to a linearizable read of %s", mapName)
		}
		for _, kind := range kinds {
			op.Kind = kind
			c.load.note(op)
		}
		return nil
	}
}

// until repeats try until it returns nil, with its last error after limit.
func until(ctx context.Context, limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", limit, err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
