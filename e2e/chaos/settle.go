package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// mended waits until all processes serve in one formed cluster. It is a problem if that does
// not come about although nothing is in its way.
func (d *round) mended(ctx context.Context) bool {
	err := until(ctx, stuckTime, func() error {
		d.storm.revive()
		for _, n := range d.cluster.Nodes() {
			if err := n.Ready(); err != nil {
				return fmt.Errorf("%s is not ready: %w", n.Name, err)
			}
		}
		return d.cluster.Formed()
	})
	if err != nil && ctx.Err() == nil {
		d.problem("cluster after the faults: %v", err)
	}
	return err == nil
}

// progress waits until every workload has changed something.
func (d *round) progress(ctx context.Context) bool {
	for _, w := range d.workloads {
		l := w.base()
		before := l.done.Load()
		err := until(ctx, stuckTime, func() error {
			if l.done.Load() == before {
				return fmt.Errorf("no client changes anything")
			}
			return nil
		})
		if err != nil {
			if ctx.Err() == nil {
				d.problem("%s after the faults: %v", l.name, err)
			}
			return false
		}
	}
	return true
}

// equal waits until all replicas are at the same index, and holds that they are equal.
func (d *round) equal(ctx context.Context) bool {
	var diverged error
	err := until(ctx, stuckTime, func() (behind error) {
		diverged, behind = d.cluster.Equal()
		if diverged != nil {
			return nil
		}
		return behind
	})
	if err = firstOf(diverged, err); err != nil && ctx.Err() == nil {
		d.problem("replicas: %v", err)
	}
	return err == nil
}

// roots holds that the hash tree of every map has the same root on all nodes.
func (d *round) roots(ctx context.Context) {
	for _, w := range d.workloads {
		l := w.base()
		for _, name := range slices.Sorted(maps.Keys(l.maps)) {
			err := until(ctx, settleTime, func() error { return d.sameRoot(ctx, name, l.maps[name]) })
			if err != nil && ctx.Err() == nil {
				d.problem("%s: roots of %s: %v", l.name, name, err)
			}
		}
	}
}

func (d *round) sameRoot(ctx context.Context, mapName string, sets bool) error {
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var first uint32
	for i, n := range d.cluster.Nodes() {
		c, err := dial(asking, n, "", nil)
		if err != nil {
			return err
		}
		root, err := c.root(asking, mapName, sets)
		c.Close()
		if err != nil {
			return fmt.Errorf("ask %s: %w", n.Name, err)
		}
		if i == 0 {
			first = root
		}
		if root != first {
			return fmt.Errorf("%s has %08x, %s has %08x", d.cluster.Nodes()[0].Name, first, n.Name, root)
		}
	}
	return nil
}
