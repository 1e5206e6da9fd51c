package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// liveQueries are query objects of all kinds that get updates.
func liveQueries(t *testing.T) map[string]msgp.Raw {
	t.Helper()
	type m = map[string]any
	list := map[string]msgp.Raw{}
	for name, object := range map[string]m{
		"all":    {},
		"equal":  {"where": m{"depot": "north"}},
		"range":  {"predicate": m{"op": "between", "attribute": "weight", "value": []any{20, 60}}},
		"top":    {"sort": []any{m{"field": "weight", "direction": "desc"}}, "limit": 5},
		"bottom": {"where": m{"depot": "south"}, "sort": m{"weight": "asc"}, "limit": 3},
		"keys":   {"limit": 7},
		"text":   {"predicate": m{"op": "like", "attribute": "depot", "value": "%th"}, "sort": m{"depot": "desc", "weight": "asc"}, "limit": 40},
	} {
		raw, err := msgp.AppendIntf(nil, object)
		require.NoError(t, err)
		list[name] = raw
	}
	return list
}

// follower is a client of one node that follows all queries and subscribes again, as
// clients do, when its connection has ended.
type follower struct {
	node    *harness.Node
	client  *harness.Client
	queries map[string]*harness.Query
}

// connect follows the queries from now on; an error says that the node cannot serve.
func (f *follower) connect(ctx context.Context, list map[string]msgp.Raw) error {
	client, err := f.node.Dial(ctx)
	if err != nil {
		return err
	}
	f.client, f.queries = client, map[string]*harness.Query{}
	for name, object := range list {
		if f.queries[name], err = client.SubscribeTo(ctx, "parcels", object); err != nil {
			client.Close()
			return err
		}
	}
	return nil
}

// differs says in what the views of f differ from what the node answers now, by a
// connection that can be shown everything.
func (f *follower) differs(ctx context.Context, list map[string]msgp.Raw) error {
	select {
	case <-f.client.Gone():
		if err := f.connect(ctx, list); err != nil {
			return err
		}
	default:
	}
	fresh := &follower{node: f.node}
	if err := fresh.connect(ctx, list); err != nil {
		return err
	}
	defer fresh.client.Close()
	for name := range list {
		want, got := fresh.queries[name].Rows(), f.queries[name].Current()
		if len(want) != len(got) {
			return fmt.Errorf("%s on %s: %d rows, the map has %d", name, f.node.Name, len(got), len(want))
		}
		for key, value := range want {
			if !bytes.Equal(got[key], value) {
				return fmt.Errorf("%s on %s: %s is % x, not % x", name, f.node.Name, key, got[key], value)
			}
		}
	}
	return nil
}

// writeParcels writes at random over any running node until stop is closed, and returns
// how many batches were accepted.
func writeParcels(t *testing.T, c *harness.Cluster, writer int, rnd *rand.Rand, stop <-chan struct{}) (accepted int) {
	var client *harness.Client
	defer func() {
		if client != nil {
			client.Close()
		}
	}()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return accepted
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if client == nil {
			nodes := c.Running()
			client, _ = nodes[rnd.IntN(len(nodes))].Dial(ctx) // one that is down is tried again
		}
		if client != nil {
			if client.Write(ctx, parcels(t, writer, i, rnd)).Accepted() {
				accepted++
			} else {
				client.Close()
				client = nil
			}
		}
		cancel()
	}
}

// parcels is a batch of writes and removals.
func parcels(t *testing.T, writer, number int, rnd *rand.Rand) *protocol.OpBatch {
	batch := &protocol.OpBatch{}
	for i := range 1 + rnd.IntN(8) {
		at := protocol.Timestamp{Millis: time.Now().UnixMilli(), Counter: int64(i), NodeID: fmt.Sprint("w", writer)}
		id, key := fmt.Sprintf("%d-%d", number, i), fmt.Sprintf("p%02d", rnd.IntN(60))
		if rnd.IntN(4) == 0 {
			batch.Ops = append(batch.Ops, harness.Remove(id, "parcels", key, at))
			continue
		}
		op := harness.Put(id, "parcels", key, "", at)
		value, err := msgp.AppendIntf(nil, map[string]any{"depot": []string{"north", "south", "west"}[rnd.IntN(3)], "weight": rnd.IntN(100)})
		require.NoError(t, err)
		op.Record.Value = value
		batch.Ops = append(batch.Ops, op)
	}
	return batch
}

// TestLiveQueriesOfEveryNodeEqualAQuery follows queries on three nodes while clients write
// and one node is killed and started again, and compares every view with what the node
// answers.
func TestLiveQueriesOfEveryNodeEqualAQuery(t *testing.T) {
	c := harness.Start(t, config(), 3)
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	list := liveQueries(t)
	stop := make(chan struct{})
	accepted := make([]int, 3)
	var writers sync.WaitGroup
	for i := range accepted {
		rnd := rand.New(rand.NewPCG(uint64(*seed), uint64(i)))
		writers.Go(func() { accepted[i] = writeParcels(t, c, i, rnd, stop) })
	}
	var followers []*follower
	for _, n := range c.Nodes() {
		f := &follower{node: n}
		harness.Eventually(t, patience, "queries on "+n.Name, func() error { return f.connect(ctx, list) })
		followers = append(followers, f)
	}
	busy := func() {
		for _, f := range followers {
			seen := len(f.queries["all"].Updates())
			harness.Eventually(t, patience, "updates on "+f.node.Name, func() error {
				select {
				case <-f.client.Gone():
					return f.connect(ctx, list)
				default:
				}
				if now := len(f.queries["all"].Updates()); now >= seen && now < seen+100 {
					return fmt.Errorf("%d updates", now)
				}
				return nil
			})
		}
	}
	busy()
	victim := leaderOf(t, c, 1)
	victim.Kill()
	for _, f := range followers {
		if f.node != victim {
			harness.Eventually(t, patience, "a new leader", func() error { return f.alive(ctx, list) })
		}
	}
	victim.Start()
	victim.AwaitReady()
	busy()
	close(stop)
	writers.Wait()
	c.AwaitEqual()
	for _, f := range followers {
		harness.Eventually(t, patience, "views on "+f.node.Name, func() error { return f.differs(ctx, list) })
		require.Empty(t, f.client.Problems())
		f.client.Close()
	}
	t.Logf("batches accepted: %v", accepted)
}

// alive says whether updates go on.
func (f *follower) alive(ctx context.Context, list map[string]msgp.Raw) error {
	select {
	case <-f.client.Gone():
		return f.connect(ctx, list)
	default:
	}
	seen := len(f.queries["all"].Updates())
	select {
	case <-time.After(200 * time.Millisecond):
	case <-ctx.Done():
	}
	if len(f.queries["all"].Updates()) == seen {
		return fmt.Errorf("no update on %s", f.node.Name)
	}
	return nil
}
