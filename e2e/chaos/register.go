package chaos

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/e2e/chaos/check"
	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// registers writes and reads some keys. The writes carry no timestamp, so that the server
// orders them; the reads are linearizable.
type registers struct {
	*load
	mapName string
}

const registerKeys = 5

func newRegisters(l *load) workload { return &registers{load: l, mapName: l.mapCalled("map", false)} }

func (w *registers) start(busy, _ context.Context) {
	w.each(busy, 4, func(ctx context.Context, c *caller) {
		if c.rng.IntN(2) == 0 {
			c.read(ctx, check.Read, w.mapName)
			return
		}
		op := c.begin(check.Put, w.called(fmt.Sprint("k", c.rng.IntN(registerKeys))), c.value())
		write := harness.Put("", w.mapName, op.Key, op.Value, protocol.Timestamp{})
		if c.rng.IntN(15) == 0 {
			op.Value, write = "", harness.Remove("", w.mapName, op.Key, protocol.Timestamp{})
		}
		c.submit(ctx, &op, write)
		c.end(op)
	})
	w.through(busy, func(ctx context.Context, c *caller, api *client.Client) {
		if c.rng.IntN(2) == 0 {
			c.fetch(ctx, api, w.mapName)
			return
		}
		c.put(ctx, api, w.mapName, c.begin(check.Put, w.called(fmt.Sprint("k", c.rng.IntN(registerKeys))), c.value()))
	})
}

func (w *registers) quiet(ctx context.Context) error { return w.finals(ctx, readAll(w.mapName)) }

func (w *registers) judge(ops []check.Op) []string { return check.Registers(ops) }

// lists appends to lists, each the value of a key, by reading and writing it under a lock.
// The lock alone would not make this atomic for a holder that was paused; its fence does,
// once the holder has shown its token to the group of the key by a first write.
type lists struct {
	*load
	mapName, fences string
}

// listKeys is the number of lists that are worked on at a time, and listLength about how
// long they get.
const listKeys, listLength = 3, 50

func newLists(l *load) workload {
	return &lists{load: l, mapName: l.mapCalled("map", false), fences: l.mapCalled("fences", false)}
}

func (w *lists) start(busy, _ context.Context) {
	w.each(busy, 4, func(ctx context.Context, c *caller) {
		if c.rng.IntN(3) == 0 {
			c.read(ctx, check.Read, w.mapName)
			return
		}
		generation := int(w.done.Load()) / (listKeys * listLength)
		w.append(ctx, c, w.called(fmt.Sprint("k", generation*listKeys+c.rng.IntN(listKeys))))
	})
}

// append adds one element, unless something comes in between.
func (w *lists) append(ctx context.Context, c *caller, key string) {
	l, ok := c.acquire(ctx, key, 6000, 5000)
	if !ok {
		return
	}
	defer c.release(ctx, l, func(check.Op) {})
	show := c.begin(check.Fenced, key, c.value())
	if c.submit(ctx, &show, l.fenced(w.fences, key, show.Value)); show.Outcome != check.OK {
		return
	}
	seen, ok := c.read(ctx, check.Read, w.mapName)
	if !ok {
		return
	}
	list := seen.Rows[key]
	op := c.begin(check.Append, key, c.value())
	op.Rows = map[string]string{key: list}
	c.submit(ctx, &op, l.fenced(w.mapName, key, check.Joined(list, op.Value)))
	c.end(op)
}

func (w *lists) quiet(ctx context.Context) error { return w.finals(ctx, readAll(w.mapName)) }

func (w *lists) judge(ops []check.Op) []string { return check.Lists(ops) }
