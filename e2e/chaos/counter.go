package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/e2e/chaos/check"
	"github.com/quorate/quorate/protocol"
)

// counters adds one to a counter again and again, and reads it from the nodes' replicas.
type counters struct {
	*load
	name      string
	followers []*counterFollower
}

func newCounters(l *load) workload { return &counters{load: l, name: l.called("total")} }

func (w *counters) start(busy, watching context.Context) {
	for _, n := range w.round.cluster.Nodes() {
		f := &counterFollower{name: w.name, caller: w.caller(n)}
		f.caller.push = f.take
		w.followers = append(w.followers, f)
		w.round.watching.Go(func() { f.run(watching) })
	}
	w.each(busy, 4, func(ctx context.Context, c *caller) {
		if c.rng.IntN(4) == 0 {
			_, _ = w.look(ctx, c, check.Local) // without an answer there is nothing to note
			return
		}
		w.add(ctx, c)
	})
	w.through(busy, func(ctx context.Context, c *caller, api *client.Client) {
		op := c.begin(check.Add, w.name, "")
		total, err := api.Counter(w.name).Add(ctx, 1)
		op.Number = total
		c.finish(op, err)
	})
}

// add adds one, and repeats the request until its outcome is known: it counts once.
func (w *counters) add(ctx context.Context, c *caller) {
	op, id, one := c.begin(check.Add, w.name, ""), c.nextID(), 1.0
	op.Outcome = check.Failed
	for deadline := time.Now().Add(insistTime); ctx.Err() == nil && time.Now().Before(deadline); {
		if !c.connect(ctx) {
			continue
		}
		// An error does not say that nothing was added.
		op.Outcome = check.Unknown
		patience, leave := askTime, c.giveUp
		if c.rng.IntN(flaky) == 0 {
			patience, leave = time.Duration(c.rng.IntN(10))*time.Millisecond, func(context.Context) { c.hangUp() }
		}
		asking, cancel := context.WithTimeout(ctx, patience)
		m, err := c.conn.ask(asking, &protocol.CounterSync{Name: w.name, Add: &one, RequestID: id}, func(m protocol.Message) bool {
			r, ok := m.(*protocol.CounterResponse)
			return ok && r.RequestID == id
		})
		cancel()
		if total := valueOf(m); err == nil && total != nil {
			op.Outcome, op.Number = check.OK, *total
			break
		}
		leave(ctx)
		if c.rng.IntN(8) == 0 {
			break
		}
	}
	c.end(op)
}

func valueOf(m protocol.Message) *float64 {
	if r, ok := m.(*protocol.CounterResponse); ok {
		return r.Value
	}
	return nil
}

// look reads the counter.
func (w *counters) look(ctx context.Context, c *caller, kind check.Kind) (total float64, err error) {
	if !c.connect(ctx) {
		return 0, errGone
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	op := c.begin(kind, w.name, "")
	m, err := c.conn.counter(asking, w.name)
	if err != nil {
		c.giveUp(ctx)
		return 0, err
	}
	op.Number, op.Outcome = totalOf(m.(*protocol.CounterResponse).State), check.OK
	c.end(op)
	return op.Number, nil
}

// totalOf is the total of a counter.
func totalOf(state protocol.CounterState) (total float64) {
	for _, v := range state.Positive {
		total += v
	}
	for _, v := range state.Negative {
		total -= v
	}
	return total
}

// quiet reads the counter on every node. The reads are local: each waits for what the node
// has just been told to add, which makes one addition the more. Then followers on all nodes
// must have been told of the last one.
func (w *counters) quiet(ctx context.Context) error {
	var last float64
	err := w.finals(ctx, func(ctx context.Context, c *caller) error {
		before := w.done.Load()
		w.add(ctx, c)
		if w.done.Load() == before {
			return fmt.Errorf("%s does not add", c.bound.Name)
		}
		total, err := w.look(ctx, c, check.Final)
		last = max(last, total)
		return err
	})
	if err != nil {
		return err
	}
	err = until(ctx, settleTime, func() error {
		for _, f := range w.followers {
			if err := f.compare(last); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		w.round.problem("counter: %v", err)
	}
	return nil
}

func (w *counters) judge(ops []check.Op) []string { return check.Counter(ops) }
