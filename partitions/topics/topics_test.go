package topics

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
)

var (
	errUnsent = errors.New("not sent")
	errCut    = errors.New("no reply")
)

// world is some nodes, each of which has its own belief of who leads.
type world struct {
	t     *testing.T
	nodes []*Service

	// mu protects the fields below.
	mu sync.Mutex
	// term is that of the newest leader; terms are those in which nodes believe to lead,
	// 0 for not at all, and leader whom they believe to lead.
	term   uint64
	terms  []uint64
	leader []int
	// believed are the terms in which they believe it to lead.
	believed []uint64
	// got is what the subscribers of each node received.
	got [][]string
	// delay is how long a request from one node to another takes, below 0 for lost.
	delay func(from, to int) time.Duration
}

func newWorld(t *testing.T, n int) *world {
	w := &world{t: t, term: 1, terms: make([]uint64, n), leader: make([]int, n), believed: make([]uint64, n), got: make([][]string, n)}
	w.terms[0] = 1
	w.delay = func(int, int) time.Duration { return time.Millisecond }
	names := make([]string, n)
	for i := range n {
		names[i] = fmt.Sprint(i)
		w.believed[i] = 1
	}
	for i := range n {
		cfg := DefaultConfig()
		cfg.Self, cfg.Run = names[i], names[i]+"/run"
		s := New(cfg, Deps{
			Logger: hclog.NewNullLogger(), GroupOf: func(string) uint32 { return 1 },
			Leader: func(uint32) (string, uint64) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return names[w.leader[i]], w.believed[i]
			},
			Term: func(uint32) (uint64, bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.terms[i], w.terms[i] > 0
			},
			Nodes: func() []string { return names },
			Publish: func(ctx context.Context, to string, body []byte) ([]byte, error) {
				return w.call(ctx, i, to, func(s *Service) ([]byte, error) { return s.HandlePublish(body) })
			},
			Deliver: func(ctx context.Context, to string, body []byte) ([]byte, error) {
				return w.call(ctx, i, to, func(s *Service) ([]byte, error) { return s.HandleDeliver(body) })
			},
			NotSent: func(err error) bool { return errors.Is(err, errUnsent) },
			Now:     func() int64 { return 7 },
		})
		s.Receive(func(m *Message) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.got[i] = append(w.got[i], string(m.Data))
		})
		w.nodes = append(w.nodes, s)
		t.Cleanup(s.Close)
	}
	return w
}

func (w *world) call(ctx context.Context, from int, to string, handle func(*Service) ([]byte, error)) ([]byte, error) {
	w.mu.Lock()
	var target int
	_, _ = fmt.Sscan(to, &target)
	d := w.delay(from, target)
	s := w.nodes[target]
	w.mu.Unlock()
	if d < 0 {
		return nil, errUnsent
	}
	type answer struct {
		reply []byte
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		time.Sleep(d) // the request comes also when nobody waits for the reply any more
		reply, err := handle(s)
		answered <- answer{reply, err}
	}()
	select {
	case a := <-answered:
		return a.reply, a.err
	case <-ctx.Done():
		return nil, errCut
	}
}

// elect makes a node the leader; the old one may not know it, nor may the others.
func (w *world) elect(node int, deposed bool, known func(node int) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.term++
	for i := range w.terms {
		if deposed || i == node {
			w.terms[i] = 0
		}
		if i == node || known(i) {
			w.leader[i], w.believed[i] = node, w.term
		}
	}
	w.terms[node] = w.term
}

func (w *world) publish(node int, publisher string, i int) bool {
	return w.nodes[node].Publish(&Message{Topic: "t", Data: fmt.Appendf(nil, "%s-%d", publisher, i), Publisher: publisher})
}

func (w *world) received(node int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.got[node]...)
}

// nobodyIsLeftOut holds that without faults every node gets everything, in one order.
func nobodyIsLeftOut(t *testing.T) (err error) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		for i := range 500 {
			for node := range 3 {
				if !w.publish(node, fmt.Sprint("p", node), i) {
					err = fmt.Errorf("no room for message %d", i)
				}
			}
			if i%50 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(time.Second)
		first := w.received(0)
		for node := range 3 {
			if got := w.received(node); len(got) != 1500 || !slices.Equal(got, first) {
				err = fmt.Errorf("node %d got %d of 1500 messages, or in another order", node, len(got))
			}
		}
		requireOrder(t, first)
	})
	return err
}

func TestEveryNodeGetsEverythingInOneOrder(t *testing.T) {
	require.NoError(t, nobodyIsLeftOut(t))
}

// requireOrder holds that of each publisher the messages ascend, and none comes twice.
func requireOrder(t *testing.T, got []string) {
	t.Helper()
	last := map[string]int{}
	for _, m := range got {
		publisher, number, _ := strings.Cut(m, "-")
		var n int
		_, _ = fmt.Sscan(number, &n)
		if before, ok := last[publisher]; ok && n <= before {
			t.Fatalf("%s after %d", m, before)
		}
		last[publisher] = n
	}
}

// requireOneOrder holds that two nodes saw what both saw in one order.
func requireOneOrder(t *testing.T, a, b []string) {
	t.Helper()
	at := map[string]int{}
	for i, m := range b {
		at[m] = i
	}
	last := -1
	for _, m := range a {
		if i, both := at[m]; both {
			if i < last {
				t.Fatalf("%s comes before %s on the other node", m, b[last])
			}
			last = i
		}
	}
}

// TestLeadersThatDoNotKnowOfEachOtherMakeNoTwoOrders has leaders change while old ones go
// on, over slow links that lose.
func TestLeadersThatDoNotKnowOfEachOtherMakeNoTwoOrders(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t, 4)
		w.delay = func(int, int) time.Duration {
			if rnd.IntN(30) == 0 {
				return -1
			}
			return time.Duration(rnd.IntN(40)) * time.Millisecond
		}
		for i := range 2000 {
			w.publish(rnd.IntN(2), fmt.Sprint("p", rnd.IntN(2)), i)
			if rnd.IntN(100) == 0 {
				w.elect(rnd.IntN(4), rnd.IntN(2) == 0, func(int) bool { return rnd.IntN(2) == 0 })
			}
			time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
		}
		w.elect(0, true, func(int) bool { return true })
		time.Sleep(10 * time.Second)
		for a := range 4 {
			for b := range 4 {
				requireOneOrder(t, w.received(a), w.received(b))
			}
		}
		require.Greater(t, len(w.received(3)), 500)
	})
}

// TestPublishersKeepTheirOrderWhenRequestsComeLate has requests arrive when the gateway has
// given them up and gone on, also at leaders of the past and at those that lead again.
func TestPublishersKeepTheirOrderWhenRequestsComeLate(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t, 3)
		w.delay = func(int, int) time.Duration {
			if rnd.IntN(10) == 0 {
				return time.Duration(rnd.IntN(12_000)) * time.Millisecond
			}
			return time.Duration(rnd.IntN(10)) * time.Millisecond
		}
		for i := range 3000 {
			node := rnd.IntN(3)
			w.publish(node, fmt.Sprint("p", node), i)
			if rnd.IntN(200) == 0 {
				w.elect(rnd.IntN(3), rnd.IntN(2) == 0, func(int) bool { return rnd.IntN(2) == 0 })
			}
			time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond)
		}
		w.elect(0, true, func(int) bool { return true })
		time.Sleep(30 * time.Second)
		for a := range 3 {
			requireOrder(t, w.received(a))
			for b := range 3 {
				requireOneOrder(t, w.received(a), w.received(b))
			}
		}
		require.Greater(t, len(w.received(2)), 300)
	})
}

func TestWhatHasNoRoomOrNoSequencerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.mu.Lock()
		w.terms[0] = 0 // nobody leads
		w.mu.Unlock()
		s := w.nodes[1]
		s.cfg.QueueMessages = 10
		for i := range 9 {
			require.True(t, w.publish(1, "p", i))
		}
		full := 0
		for i := range 30 {
			if !w.publish(1, "p", 9+i) {
				full++
			}
		}
		require.Positive(t, full)
		time.Sleep(time.Minute)
		require.Equal(t, uint64(39), s.Lost())
		require.Empty(t, w.received(0))
		w.elect(0, true, func(int) bool { return true })
		require.True(t, w.publish(1, "p", 99))
		time.Sleep(time.Second)
		require.Equal(t, []string{"p-99"}, w.received(0))
		require.Equal(t, []string{"p-99"}, w.received(1))
	})
}

func TestMalformedBatchesAreRefused(t *testing.T) {
	s := New(DefaultConfig(), Deps{})
	defer s.Close()
	for _, body := range [][]byte{nil, {1}, {2}, {2, 1, 9}, append(encode(&batch{messages: []*Message{{Topic: "t"}}}), 0)} {
		_, err := s.HandlePublish(body)
		require.Error(t, err, "%v", body)
		_, err = s.HandleDeliver(body)
		require.Error(t, err, "%v", body)
	}
}

func FuzzDecode(f *testing.F) {
	m := &Message{Topic: "t", Data: []byte{1}, Publisher: "p", Origin: "o", Millis: 5, group: 3, place: place{1, 2}}
	f.Add(encode(&batch{group: 3, term: 7, run: "n/1", number: 5, messages: []*Message{m}}))
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := decode(body)
		if err != nil {
			return
		}
		again, err := decode(encode(b))
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}
