package chaos

import (
	"context"
	"time"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/e2e/chaos/check"
	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// sets adds elements, each a key of one map, with timestamps of the client and without, at
// all levels that outlive the loss of a node.
type sets struct {
	*load
	mapName string
}

// setSize is the size beyond which a set grows slowly: all of it is read again and again.
const setSize = 600

func newSets(l *load) workload { return &sets{load: l, mapName: l.mapCalled("map", false)} }

func (w *sets) start(busy, _ context.Context) {
	levels := []protocol.WriteConcern{protocol.LevelDefault, protocol.LevelApplied, protocol.LevelReplicated, protocol.LevelPersisted}
	w.each(busy, 4, func(ctx context.Context, c *caller) {
		switch n := c.rng.IntN(12); {
		case n == 0:
			c.read(ctx, check.Read, w.mapName)
		case n == 1:
			c.read(ctx, check.Local, w.mapName)
		default:
			if w.done.Load() > setSize {
				c.rest(ctx, 4*time.Second)
			}
			op := c.begin(check.Add, "", c.value())
			at := protocol.Timestamp{}
			if c.rng.IntN(2) == 0 {
				at = protocol.Timestamp{Millis: time.Now().UnixMilli(), NodeID: c.name}
			}
			write := harness.Put("", w.mapName, op.Value, op.Value, at)
			write.WriteConcern = levels[c.rng.IntN(len(levels))]
			c.submit(ctx, &op, write)
			c.end(op)
		}
	})
	w.through(busy, func(ctx context.Context, c *caller, api *client.Client) {
		if c.rng.IntN(6) == 0 {
			c.fetch(ctx, api, w.mapName)
			return
		}
		if w.done.Load() > setSize {
			c.rest(ctx, 4*time.Second)
		}
		op := c.begin(check.Add, "", c.value())
		_, err := api.Map(w.mapName).Put(ctx, op.Value, op.Value, client.AtLevel(levels[c.rng.IntN(len(levels))]))
		c.finish(op, err)
	})
}

func (w *sets) quiet(ctx context.Context) error {
	return w.finals(ctx, readAll(w.mapName, check.Final))
}

func (w *sets) judge(ops []check.Op) []string { return check.Set(ops) }
