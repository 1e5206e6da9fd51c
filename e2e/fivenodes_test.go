package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// wide is a map on five nodes of which none holds all groups, and what was written to it.
type wide struct {
	t       *testing.T
	ctx     context.Context
	cluster *harness.Cluster
	want    map[string]string
	follow  map[string]*wideClient
}

// wideClient follows the map on one node. It connects again when it is told to.
type wideClient struct {
	client *harness.Client
	query  *harness.Query
}

const wideMap = "spread"

// TestEveryNodeOfFiveAnswersForAll writes through five nodes with three replicas of each
// group, reads everything on each of them in every way, and goes on when one is killed.
func TestEveryNodeOfFiveAnswersForAll(t *testing.T) {
	c := harness.Start(t, config(), 5)
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	s := &wide{t: t, ctx: ctx, cluster: c, want: map[string]string{}, follow: map[string]*wideClient{}}
	// A young cluster still moves its groups apart.
	harness.Eventually(t, patience, "a cluster of which no node holds all groups", func() error {
		statuses, err := c.Statuses()
		if err != nil {
			return err
		}
		for _, status := range statuses {
			if len(status.Groups) > 5 {
				return fmt.Errorf("%s holds %d groups", status.NodeID, len(status.Groups))
			}
		}
		return nil
	})
	for _, n := range c.Nodes() {
		s.follow[n.Name] = &wideClient{}
	}
	s.followed()
	s.write("first")
	s.read()
	s.count()

	victim := c.Node("n3")
	victim.Kill()
	delete(s.follow, victim.Name)
	s.write("second")
	s.read()
	for _, f := range s.follow {
		f.client.Close()
	}
}

// write writes some keys through every running node.
func (s *wide) write(value string) {
	s.t.Helper()
	for i, n := range s.cluster.Running() {
		client, err := n.Dial(s.ctx)
		require.NoError(s.t, err)
		var ops []protocol.ClientOp
		now := protocol.Timestamp{Millis: time.Now().UnixMilli(), NodeID: "w"}
		for k := range 40 {
			key, text := fmt.Sprintf("k%d-%02d", i, k), fmt.Sprintf("%s of %s", value, n.Name)
			ops = append(ops, harness.Put(fmt.Sprint(k+1), wideMap, key, text, now))
			s.want[key] = text
		}
		ops = append(ops, harness.Remove("41", wideMap, fmt.Sprintf("k%d-00", i), protocol.Timestamp{Millis: now.Millis + 1, NodeID: "w"}))
		delete(s.want, fmt.Sprintf("k%d-00", i))
		harness.Eventually(s.t, patience, "a write through "+n.Name, func() error {
			if !client.Write(s.ctx, &protocol.OpBatch{Ops: ops}).Accepted() {
				client.Close()
				if again, err := n.Dial(s.ctx); err == nil {
					client = again
				}
				return errors.New("not accepted")
			}
			return nil
		})
		// The same connection reads what it wrote.
		harness.Eventually(s.t, patience, "its writer's read on "+n.Name, func() error {
			q, err := client.Subscribe(s.ctx, wideMap)
			if err != nil {
				return err
			}
			return s.same(q)
		})
		client.Close()
	}
}

// same compares the rows that q has with what was written.
func (s *wide) same(q *harness.Query) error { return sameRows(s.want, q) }

// followed waits until the follower on every node has what was written.
func (s *wide) followed() {
	s.t.Helper()
	for name, f := range s.follow {
		harness.Eventually(s.t, patience, "the follower on "+name, func() error { return s.caughtUp(name, f) })
	}
}

func (s *wide) caughtUp(name string, f *wideClient) error {
	if f.client != nil {
		select {
		case <-f.client.Gone():
			f.client = nil
		default:
			return s.same(f.query)
		}
	}
	client, err := s.cluster.Node(name).Dial(s.ctx)
	if err != nil {
		return err
	}
	// Its rows may be replaced by new ones, when changes were lost with a node.
	query, err := client.SubscribeTo(s.ctx, wideMap, nil)
	if err != nil {
		client.Close()
		return err
	}
	f.client, f.query = client, query
	return s.same(f.query)
}

// read has every running node answer for the whole map in every way.
func (s *wide) read() {
	s.t.Helper()
	s.followed()
	roots := map[uint32]string{}
	for _, n := range s.cluster.Running() {
		harness.Eventually(s.t, patience, "the map on "+n.Name, func() error {
			state, err := n.ReadState(s.ctx, wideMap)
			if err == nil && fmt.Sprint(state[wideMap]) != fmt.Sprint(s.want) {
				err = fmt.Errorf("%d rows, want %d", len(state[wideMap]), len(s.want))
			}
			return err
		})
		harness.Eventually(s.t, patience, "the root on "+n.Name, func() error {
			root, err := s.root(n)
			if err == nil {
				roots[root] = n.Name
			}
			return err
		})
		require.Equal(s.t, s.want, httpState(s.t, s.ctx, n, wideMap), "deltas of %s", n.Name)
	}
	require.Len(s.t, roots, 1, "the root is the same on all nodes: %v", roots)
	require.NotContains(s.t, roots, uint32(0))
}

// root is the root of the map's hash tree as a node shows it.
func (s *wide) root(n *harness.Node) (uint32, error) {
	client, err := n.Dial(s.ctx)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	if err := client.Send(s.ctx, &protocol.SyncInit{MapName: wideMap}); err != nil {
		return 0, err
	}
	m, _, err := client.Await(s.ctx, 0, func(m protocol.Message) bool { _, ok := m.(*protocol.SyncRespRoot); return ok })
	if err != nil {
		return 0, err
	}
	return m.(*protocol.SyncRespRoot).RootHash, nil
}

// count adds to some counters on all nodes; every node reads and follows all of them.
func (s *wide) count() {
	s.t.Helper()
	const counters = 6
	clients := map[string]*harness.Client{}
	for _, n := range s.cluster.Nodes() {
		client, err := n.Dial(s.ctx)
		require.NoError(s.t, err)
		defer client.Close()
		clients[n.Name] = client
		for i := range counters {
			require.NoError(s.t, client.Send(s.ctx, &protocol.CounterRequest{Name: fmt.Sprint("counter", i)}))
		}
	}
	one := 1.0
	for _, n := range s.cluster.Nodes() {
		for i := range counters {
			name := fmt.Sprint("counter", i)
			add := &protocol.CounterSync{Name: name, Add: &one, RequestID: name}
			require.NoError(s.t, clients[n.Name].Send(s.ctx, add))
		}
	}
	for name, client := range clients {
		for i := range counters {
			counter := fmt.Sprint("counter", i)
			_, _, err := client.Await(s.ctx, 0, func(m protocol.Message) bool {
				switch m := m.(type) {
				case *protocol.CounterUpdate:
					return m.Name == counter && totalOf(m.State) == float64(len(clients))
				case *protocol.CounterResponse: // who added last learns it from the answer
					return m.Name == counter && totalOf(m.State) == float64(len(clients))
				default:
					return false
				}
			})
			require.NoError(s.t, err, "%s on %s", counter, name)
		}
	}
}
