package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorate/quorate/e2e/chaos/check"
	"github.com/quorate/quorate/e2e/harness"
)

// recoverName is the nemesis that has a round of its own: what was not on the survivor is
// lost for good, and no check spans that.
const recoverName = "recover"

// rare is one in how many rounds is such a round, when there are other faults.
const rare = 8

// losesQuorum reports whether the round of a seed is one that loses the quorum.
func (c *Config) losesQuorum(seed int64) bool {
	if c.Nodes != 3 || !slices.Contains(c.Nemeses, recoverName) {
		return false
	}
	return len(c.Nemeses) == 1 || rand.New(rand.NewPCG(uint64(seed), hash(recoverName))).IntN(rare) == 0
}

// loseQuorum loses two of three nodes for good, at rest. The survivor must come back alone
// with what it had and greater fencing tokens, the lost ones be refused, and nodes with
// empty disks make the cluster whole again.
func (d *round) loseQuorum(ctx context.Context) error {
	began := time.Now()
	l, err := d.newLoad(recoverName)
	if err != nil {
		return err
	}
	w := newLocks(l).(*locks)
	d.workloads = append(d.workloads, w)
	name := w.called("l")
	before, err := d.landmark(ctx, w, name)
	if err != nil {
		d.problem("before the loss of the quorum: %v", err)
		return nil
	}
	at := d.phase("prepared", began)
	all := d.cluster.Nodes()
	i := rand.New(rand.NewPCG(uint64(d.seed), 0)).IntN(len(all))
	survivor, lost := all[i], slices.Delete(slices.Clone(all), i, i+1)
	band := check.Band{Name: recoverName, About: survivor.Name, From: d.run.now()}
	if err := each(all, (*harness.Node).Kill); err != nil {
		return err
	}
	if out, err := survivor.OfflineTool(ctx, "recover", "--yes"); err != nil {
		d.problem("recover: %v: %s", err, out)
		return nil
	}
	survivor.Start()
	if err := until(ctx, stuckTime, d.cluster.Formed); err != nil {
		d.problem("the survivor alone: %v", err)
		return nil
	}
	at = d.phase("recovered", at)
	after, err := d.landmark(ctx, w, name)
	switch {
	case err != nil:
		d.problem("the survivor alone: %v", err)
	case after.token <= before.token:
		d.problem("token %d was given after token %d", after.token, before.token)
	}
	for _, n := range lost {
		d.replace(n)
	}
	d.storm.bands = append(d.storm.bands, check.Band{Name: recoverName, About: survivor.Name, From: band.From, To: d.run.now()})
	d.mended(ctx)
	if d.equal(ctx) {
		d.roots(ctx)
	}
	d.phase("whole", at)
	return ctx.Err()
}

// landmark takes a lock, and reads and writes what it protects, so that the judge of the
// history can tell whether both have stayed.
func (d *round) landmark(ctx context.Context, w *locks, name string) (*held, error) {
	c := w.caller(nil)
	defer c.hangUp()
	var l *held
	err := until(ctx, stuckTime, func() (err error) {
		running := d.cluster.Running()
		c.bound = running[0]
		op := c.begin(check.Acquire, name, "")
		granted, ok := c.acquire(ctx, name, 2000, 5000)
		if !ok {
			return fmt.Errorf("lock %s is not granted", name)
		}
		l = granted
		op.Token, op.Until, op.Outcome = l.token, l.until, check.OK
		c.end(op)
		_, former := c.read(ctx, check.Read, w.resources)
		w.write(ctx, c, l)
		c.release(ctx, l, w.note)
		if _, latter := c.read(ctx, check.Read, w.resources); !former || !latter {
			return fmt.Errorf("%s is not read", w.resources)
		}
		return nil
	})
	return l, err
}

// replace holds that a lost node is refused, and starts it with an empty disk.
func (d *round) replace(n *harness.Node) {
	n.Start()
	if code := n.AwaitExit(); code != exitRefused {
		d.problem("the lost node %s ends with code %d: %s", n.Name, code, n.LogTail(5))
	}
	n.Wipe()
	n.Start()
}
