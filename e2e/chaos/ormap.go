package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/e2e/chaos/check"
	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// tags adds to an observed-remove map and removes what was added, also by others.
type tags struct {
	*load
	mapName string

	// mu protects added: acknowledged tags that nobody chose for removal yet, by tag their
	// keys.
	mu    sync.Mutex
	added []check.Op
}

func newTags(l *load) workload { return &tags{load: l, mapName: l.mapCalled("map", true)} }

func (w *tags) start(busy, _ context.Context) {
	w.each(busy, 3, func(ctx context.Context, c *caller) {
		if c.rng.IntN(5) < 2 {
			w.remove(ctx, c)
			return
		}
		at := protocol.Timestamp{Millis: time.Now().UnixMilli(), NodeID: c.name}
		op := c.begin(check.Add, w.called(fmt.Sprint("k", c.rng.IntN(8))), at.String()+"/"+c.value())
		record := protocol.ORRecord{Value: harness.Text(op.Value), Timestamp: at, Tag: op.Value}
		c.submit(ctx, &op, protocol.ClientOp{MapName: w.mapName, Key: op.Key, Type: protocol.OpORAdd, ORRecord: &record, Timestamp: at})
		w.offer(c.end(op))
	})
	w.through(busy, func(ctx context.Context, c *caller, api *client.Client) {
		set := api.Set(w.mapName)
		if c.rng.IntN(5) < 2 {
			victim, ok := w.victim(c)
			if !ok {
				return
			}
			op := c.begin(check.Remove, victim.Key, victim.Value)
			_, err := set.RemoveTag(ctx, op.Key, op.Value)
			c.finish(op, err)
			return
		}
		op := c.begin(check.Add, w.called(fmt.Sprint("k", c.rng.IntN(8))), "")
		tag, _, err := set.Add(ctx, op.Key, c.value())
		op.Value = tag
		w.offer(c.finish(op, err))
	})
}

// offer lets an acknowledged tag be removed by anybody.
func (w *tags) offer(op check.Op) {
	if op.Outcome != check.OK {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.added = append(w.added, op)
}

// victim chooses a tag to be removed, for one caller only.
func (w *tags) victim(c *caller) (op check.Op, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.added) == 0 {
		return op, false
	}
	i := c.rng.IntN(len(w.added))
	op = w.added[i]
	w.added = append(w.added[:i], w.added[i+1:]...)
	return op, true
}

func (w *tags) remove(ctx context.Context, c *caller) {
	victim, ok := w.victim(c)
	if !ok {
		return
	}
	op := c.begin(check.Remove, victim.Key, victim.Value)
	at := protocol.Timestamp{Millis: time.Now().UnixMilli(), NodeID: c.name}
	c.submit(ctx, &op, protocol.ClientOp{MapName: w.mapName, Key: op.Key, Type: protocol.OpORRemove, ORTag: op.Value, Timestamp: at})
	c.end(op)
}

// quiet has a device that holds nothing sync with each node.
func (w *tags) quiet(ctx context.Context) error {
	return w.finals(ctx, func(ctx context.Context, c *caller) error {
		syncing, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		d := harness.NewDevice(c.name)
		d.Sets[w.mapName] = &harness.ORMap{Live: map[string]map[string]protocol.ORRecord{}, Removed: map[string]bool{}}
		defer d.Disconnect()
		if err := d.Connect(syncing, c.bound); err != nil {
			return err
		}
		op := c.begin(check.Final, "", "")
		if _, err := d.Sync(syncing); err != nil {
			return err
		}
		op.Rows, op.Node, op.Outcome = map[string]string{}, c.bound.Name, check.OK
		for key, records := range d.Sets[w.mapName].Live {
			for tag := range records {
				op.Rows[tag] = key
			}
		}
		c.end(op)
		return nil
	})
}

func (w *tags) judge(ops []check.Op) []string { return check.Tags(ops) }
