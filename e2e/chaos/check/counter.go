package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Counter holds that additions of one are linearizable, each with the total right after
// it, and that what is read lies within what was added and is not taken back: a final total
// is none below what anybody was shown before. With additions of one the order
// is known: the total is the place. Totals that nobody was told belong to additions with
// unknown outcome, of which each takes one place at most.
func Counter(ops []Op) []string {
	c := &counterCheck{}
	for _, op := range ops {
		switch {
		case op.Kind == Add && op.Outcome == OK:
			c.known = append(c.known, op)
		case op.Kind == Add && op.Outcome == Unknown:
			c.open = append(c.open, op.Call)
		}
	}
	slices.SortFunc(c.known, func(a, b Op) int { return cmp.Compare(a.Number, b.Number) })
	c.order()
	final := c.reads(ops)
	c.gaps(final)
	return c.problems
}

type counterCheck struct {
	known    []Op // additions with a total, by total
	open     []int64
	problems []string
}

func (c *counterCheck) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// order holds that totals differ and follow real time.
func (c *counterCheck) order() {
	latest := Op{Call: math.MinInt64}
	for i, op := range c.known {
		if i > 0 && op.Number == c.known[i-1].Number {
			c.problem("clients %d and %d both made the total %v", c.known[i-1].Client, op.Client, op.Number)
		}
		if op.Number < 1 || op.Number != math.Trunc(op.Number) {
			c.problem("client %d made the total %v by adding one", op.Client, op.Number)
		}
		if op.Return < latest.Call {
			c.problem("client %d made the total %v before client %d began to make %v", op.Client, op.Number, latest.Client, latest.Number)
		}
		if op.Call > latest.Call {
			latest = op
		}
	}
}

// reads holds that totals are possible, that final ones hold all that was acknowledged or
// shown, that no session reads less than before, and returns the final total, -1 without one.
func (c *counterCheck) reads(ops []Op) (final float64) {
	final = -1
	type session struct{ client, number int }
	least := make(map[session]float64)
	for _, op := range ops {
		if op.Outcome != OK || op.Kind != Local && op.Kind != Final && op.Kind != Add {
			continue
		}
		began := 0
		for _, other := range ops {
			if other.Kind == Add && other.Outcome != Failed && other.Call < op.Return {
				began++
			}
		}
		if op.Number > float64(began) {
			c.problem("%s of client %d on %s shows %v after %d additions", op.Kind, op.Client, op.Node, op.Number, began)
		}
		at := session{op.Client, op.Session}
		if op.Kind != Final && op.Number < least[at] {
			c.problem("client %d reads %v on %s after %v", op.Client, op.Number, op.Node, least[at])
		}
		least[at] = max(least[at], op.Number)
		if op.Kind != Final {
			continue
		}
		c.complete(op, ops)
		final = max(final, op.Number)
	}
	return final
}

// complete holds that a final total holds every addition that was acknowledged before, and
// is no less than any total that was shown before, also by a replica: those show only what
// is committed.
func (c *counterCheck) complete(final Op, ops []Op) {
	acknowledged, shown := 0, Op{}
	for _, op := range ops {
		if op.Outcome != OK || op.Return >= final.Call {
			continue
		}
		if op.Kind == Add {
			acknowledged++
		}
		if op.Number > shown.Number {
			shown = op
		}
	}
	if final.Number < float64(acknowledged) {
		c.problem("%s ends with %v of %d acknowledged additions", final.Node, final.Number, acknowledged)
	}
	if final.Number < shown.Number {
		c.problem("%s ends with %v, although client %d was shown %v on %s", final.Node, final.Number, shown.Client, shown.Number, shown.Node)
	}
}

// gaps gives every total that nobody was told to an addition with unknown outcome that had
// begun before a greater total was told.
func (c *counterCheck) gaps(final float64) {
	var deadlines []int64
	next, end := final, int64(math.MaxInt64)
	if last := len(c.known) - 1; last >= 0 {
		next = max(final, c.known[last].Number)
	}
	for i := len(c.known) - 1; i >= -1; i-- {
		place := 0.0
		if i >= 0 {
			place = c.known[i].Number
		}
		for ; next > place; next-- {
			deadlines = append(deadlines, end)
		}
		next = min(next, place-1)
		if i < 0 {
			break
		}
		end = min(end, c.known[i].Return)
	}
	slices.Sort(deadlines)
	slices.Sort(c.open)
	for i, deadline := range deadlines {
		if i >= len(c.open) || c.open[i] > deadline {
			c.problem("%d totals were told to nobody, and too few of %d additions with unknown outcome can have made them", len(deadlines), len(c.open))
			return
		}
	}
}
