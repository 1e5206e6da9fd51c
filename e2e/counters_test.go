package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// TestTopicsReachAllNodes publishes on two nodes at once and listens on all.
func TestTopicsReachAllNodes(t *testing.T) {
	c := harness.Start(t, config(), 3)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	clients := map[string]*harness.Client{}
	for _, n := range c.Nodes() {
		client := dialed(ctx, t, n)
		clients[n.Name] = client
		require.NoError(t, client.Send(ctx, &protocol.TopicSub{Topic: "ride/42"}))
		requireTaken(ctx, t, client)
	}
	publishers := [2]*harness.Client{dialed(ctx, t, c.Nodes()[0]), dialed(ctx, t, c.Nodes()[1])}
	const messages = 200
	for i := range messages {
		for _, p := range publishers {
			require.NoError(t, p.Send(ctx, &protocol.TopicPub{Topic: "ride/42", Data: msgp.AppendInt(nil, i)}))
		}
	}
	var order []string
	for name, client := range clients {
		got := topicOf(ctx, t, client, 2*messages)
		if order == nil {
			order = got
		}
		require.Equal(t, order, got, "one order on all nodes, also on %s", name)
	}
}

// dialed is a connection that ends with the test.
func dialed(ctx context.Context, t *testing.T, n *harness.Node) *harness.Client {
	t.Helper()
	client, err := n.Dial(ctx)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// requireTaken waits until the node has taken what was sent before.
func requireTaken(ctx context.Context, t *testing.T, client *harness.Client) {
	t.Helper()
	require.NoError(t, client.Send(ctx, &protocol.CounterRequest{Name: "nothing"}))
	_, _, err := client.Await(ctx, 0, func(m protocol.Message) bool { _, ok := m.(*protocol.CounterResponse); return ok })
	require.NoError(t, err)
}

// TestCountersReachAllNodes adds on all nodes at once while one is killed and comes back, and
// holds that every addition counts once and that followers on all nodes see the last one.
func TestCountersReachAllNodes(t *testing.T) {
	c := harness.Start(t, config(), 3)
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	const each = 60
	a := &additions{cluster: c}
	followers := map[string]*harness.Client{}
	for _, n := range c.Nodes() {
		followers[n.Name] = counterFollower(ctx, t, n)
	}
	var adders sync.WaitGroup
	for i := range c.Nodes() {
		adders.Go(func() { a.add(ctx, i, each) })
	}
	reach := func(n int) {
		harness.Eventually(t, 2*patience, "additions", func() error {
			if got := len(a.all()); got < n {
				return fmt.Errorf("%d, want %d", got, n)
			}
			return nil
		})
	}
	reach(each / 2)
	victim := c.Node("n1")
	victim.Kill()
	reach(3 * each / 2)
	victim.Start()
	victim.AwaitReady()
	followers[victim.Name] = counterFollower(ctx, t, victim)
	adders.Wait()
	totals := a.all()
	slices.Sort(totals)
	require.Len(t, totals, 3*each)
	for i, total := range totals {
		require.InDelta(t, i+1, total, 0, "every addition makes a total of its own")
	}
	for name, client := range followers {
		_, _, err := client.Await(ctx, 0, func(m protocol.Message) bool { return shownTotal(m) == 3*each })
		require.NoError(t, err, "the follower on %s sees the last addition", name)
	}
}

// shownTotal is the total that a follower of a counter is shown, 0 by other messages.
func shownTotal(m protocol.Message) float64 {
	switch m := m.(type) {
	case *protocol.CounterUpdate:
		return totalOf(m.State)
	case *protocol.CounterResponse:
		return totalOf(m.State)
	default:
		return 0
	}
}

// counterFollower is a connection that is told of changes of the counter.
func counterFollower(ctx context.Context, t *testing.T, n *harness.Node) *harness.Client {
	t.Helper()
	client := dialed(ctx, t, n)
	require.NoError(t, client.Send(ctx, &protocol.CounterRequest{Name: "likes"}))
	_, _, err := client.Await(ctx, 0, func(m protocol.Message) bool { _, ok := m.(*protocol.CounterResponse); return ok })
	require.NoError(t, err)
	return client
}

// additions are the totals that clients were told.
type additions struct {
	cluster *harness.Cluster

	// mu protects totals.
	mu     sync.Mutex
	totals []float64
}

func (a *additions) all() []float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.totals)
}

// add adds one n times, first on the node with a number, and on the next one whenever a
// connection has ended or does not answer. An addition is repeated under its id.
func (a *additions) add(ctx context.Context, node, n int) {
	device := fmt.Sprint("adder-", node)
	for done := 0; done < n && ctx.Err() == nil; node++ {
		client, err := a.cluster.Nodes()[node%3].DialWith(ctx, "", harness.ClientConfig{DeviceToken: device})
		if err != nil {
			select { // the node is down
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		for ; done < n; done++ {
			total, err := addOne(ctx, client, fmt.Sprint(device, "/", done))
			if err != nil {
				break
			}
			a.mu.Lock()
			a.totals = append(a.totals, total)
			a.mu.Unlock()
		}
		client.Close()
	}
}

// addOne adds one and returns the total right after it.
func addOne(ctx context.Context, client *harness.Client, id string) (float64, error) {
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	one := 1.0
	if err := client.Send(asking, &protocol.CounterSync{Name: "likes", Add: &one, RequestID: id}); err != nil {
		return 0, err
	}
	m, _, err := client.Await(asking, 0, func(m protocol.Message) bool {
		r, ok := m.(*protocol.CounterResponse)
		return ok && r.RequestID == id && r.Value != nil
	})
	if err != nil {
		return 0, err
	}
	return *m.(*protocol.CounterResponse).Value, nil
}

func topicOf(ctx context.Context, t *testing.T, client *harness.Client, n int) (got []string) {
	t.Helper()
	for place := 0; len(got) < n; {
		m, next, err := client.Await(ctx, place, func(m protocol.Message) bool { _, ok := m.(*protocol.TopicMessage); return ok })
		require.NoError(t, err)
		message := m.(*protocol.TopicMessage)
		got, place = append(got, fmt.Sprintf("%s %x", message.PublisherID, []byte(message.Data))), next
	}
	return got
}

func totalOf(s protocol.CounterState) (total float64) {
	for _, v := range s.Positive {
		total += v
	}
	for _, v := range s.Negative {
		total -= v
	}
	return total
}
