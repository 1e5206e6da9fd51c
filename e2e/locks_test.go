package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/e2e/model"
	"github.com/quorate/quorate/protocol"
)

const guardedLock = "jobs/nightly"

// exclusion watches who holds the lock, as the clients know it.
type exclusion struct {
	t *testing.T

	// mu protects the fields below.
	mu       sync.Mutex
	holder   string
	greatest uint64
	grants   int
}

func (e *exclusion) enter(who string, token uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holder != "" {
		e.t.Errorf("%s gets the lock while %s holds it", who, e.holder)
	}
	if token <= e.greatest {
		e.t.Errorf("%s gets token %d after %d", who, token, e.greatest)
	}
	e.holder, e.greatest = who, token
	e.grants++
}

func (e *exclusion) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holder = ""
}

func (e *exclusion) count() (grants int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.grants
}

// work takes the lock again and again over one node, and writes in its protection.
func (e *exclusion) work(ctx context.Context, n *harness.Node, who string) {
	for round := 0; ctx.Err() == nil; round++ {
		c, err := n.Dial(ctx)
		if err != nil {
			select { // the node is down
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		for place := 0; ctx.Err() == nil; round++ {
			if place, err = e.once(ctx, c, place, who, round); err != nil {
				break
			}
		}
		c.Close()
	}
}

// once takes the lock, writes and releases it. An error means that the connection is of no
// use any more.
func (e *exclusion) once(ctx context.Context, c *harness.Client, place int, who string, round int) (next int, err error) {
	id, wait := fmt.Sprint(who, "/", round), int64(10_000)
	if err := c.Send(ctx, &protocol.LockRequest{RequestID: id, Name: guardedLock, WaitMillis: &wait}); err != nil {
		return place, err
	}
	m, place, err := c.Await(ctx, place, func(m protocol.Message) bool {
		switch m := m.(type) {
		case *protocol.LockGranted:
			return m.RequestID == id
		case *protocol.LockReleased:
			return m.RequestID == ""
		default:
			return false
		}
	})
	granted, ok := m.(*protocol.LockGranted)
	if err != nil || !ok {
		return place, err
	}
	e.enter(who, granted.FencingToken)
	op := harness.Put(id, "guarded", "resource", id, protocol.Timestamp{})
	op.Fence = &protocol.Fence{Lock: guardedLock, Token: granted.FencingToken}
	if outcome := c.Write(ctx, &protocol.OpBatch{Ops: []protocol.ClientOp{op}})[id]; outcome.Kind == model.Refused {
		e.t.Errorf("the holder's write with token %d is refused: %+v", granted.FencingToken, outcome)
	}
	e.leave()
	if err := c.Send(ctx, &protocol.LockRelease{RequestID: id, Name: guardedLock, FencingToken: granted.FencingToken}); err != nil {
		return place, err
	}
	m, place, err = c.Await(ctx, place, func(m protocol.Message) bool {
		released, ok := m.(*protocol.LockReleased)
		return ok && released.RequestID == id
	})
	if err == nil && !m.(*protocol.LockReleased).Success {
		e.t.Errorf("%s could not release token %d: %+v", who, granted.FencingToken, m)
	}
	return place, err
}

// TestLocksExcludeWhileNodesDie has clients of all nodes fight for a lock while nodes are
// killed, and holds that no two have it, tokens ascend, and no holder is fenced off.
func TestLocksExcludeWhileNodesDie(t *testing.T) {
	c := harness.Start(t, config(), 3)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	e := &exclusion{t: t}
	var workers sync.WaitGroup
	for i := range 6 {
		// The short run has no clients on the node that is killed: what they leave behind
		// lasts until their node has been silent for 30 s.
		n := c.Nodes()[1+i%2]
		if *full {
			n = c.Nodes()[i%3]
		}
		workers.Go(func() { e.work(ctx, n, fmt.Sprint("w", i)) })
	}
	progress := func(n int) {
		from := e.count()
		harness.Eventually(t, patience, "grants", func() error {
			if got := e.count() - from; got < n {
				return fmt.Errorf("%d grants, want %d", got, n)
			}
			return nil
		})
	}
	progress(100)
	rounds := 1
	if *full {
		rounds = 5
	}
	rng := rand.New(rand.NewPCG(uint64(*seed), 3))
	for range rounds {
		victim := c.Node("n1")
		if *full {
			victim = c.Nodes()[rng.IntN(3)]
		}
		victim.Kill()
		progress(100)
		victim.Start()
		c.AwaitReady()
		progress(100)
	}
	stop()
	workers.Wait()
	c.AwaitEqual()
	t.Logf("%d grants, greatest token %d", e.grants, e.greatest)
	requireFence(t, c)
}

// requireFence holds that the first holder, who wakes up late, writes nothing.
func requireFence(t *testing.T, c *harness.Cluster) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := c.Node("n2").Dial(ctx)
	require.NoError(t, err)
	defer client.Close()
	op := harness.Put("late", "guarded", "resource", "late", protocol.Timestamp{})
	op.Fence = &protocol.Fence{Lock: guardedLock, Token: 1}
	outcome := client.Write(ctx, &protocol.OpBatch{Ops: []protocol.ClientOp{op}})["late"]
	require.Equal(t, model.Refused, outcome.Kind)
	// The last writes of the workers may still be on their way.
	c.AwaitEqual()
	for _, n := range c.Nodes() {
		require.NotEqual(t, "late", readState(t, n, "guarded")["guarded"]["resource"], n.Name)
	}
}

// TestTheLockOfADeadNodesClientComesFree kills the node that a holder is connected to.
func TestTheLockOfADeadNodesClientComesFree(t *testing.T) {
	onlyFull(t)
	c := harness.Start(t, config(), 3)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	e := &exclusion{t: t}
	holder, err := c.Node("n1").Dial(ctx)
	require.NoError(t, err)
	defer holder.Close()
	require.NoError(t, holder.Send(ctx, &protocol.LockRequest{RequestID: "h", Name: guardedLock}))
	_, _, err = holder.Await(ctx, 0, func(m protocol.Message) bool { _, ok := m.(*protocol.LockGranted); return ok })
	require.NoError(t, err)
	c.Node("n1").Kill()
	working, stop := context.WithCancel(ctx)
	var worker sync.WaitGroup
	worker.Go(func() { e.work(working, c.Node("n2"), "next") })
	harness.Eventually(t, patience, "the next grant", func() error {
		if e.count() == 0 {
			return fmt.Errorf("none yet")
		}
		return nil
	})
	stop()
	worker.Wait()
}
