package partitions

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// follower is a client that follows map m: it has the rows that it was shown, changed by
// the events since, and is shown all anew after a gap.
type follower struct {
	t *testing.T
	n *fleetNode
	s *Session

	mu     sync.Mutex
	sub    *Subscription
	rows   map[string]int64 // timestamps by key
	events int
	gaps   int
	broken string
	index  map[string]uint64
}

func (n *fleetNode) follow(t *testing.T) *follower {
	t.Helper()
	f := &follower{t: t, n: n, s: n.router.NewSession()}
	require.NoError(t, f.show(deadline(t, 30*time.Second)))
	t.Cleanup(func() { f.close() })
	return f
}

// show subscribes anew and takes the present rows. Events that come for the subscription
// before are not counted any more.
func (f *follower) show(ctx context.Context) error {
	f.close()
	sink := &followerSink{f: f}
	sub, err := f.n.router.Subscribe(ctx, f.s, "m", Interest{}, sink)
	if err != nil {
		return err
	}
	q, err := CompileQuery(nil, QueryOptions{})
	if err != nil {
		return err
	}
	answer, err := f.n.router.Answer(ctx, f.s, Ask{Map: "m", Query: q, Rows: MaxQueryRows, Bytes: 8 << 20})
	if err != nil {
		sub.Close()
		return err
	}
	f.mu.Lock()
	f.rows, f.index, f.sub = map[string]int64{}, map[string]uint64{}, sub
	for i := range answer.Rows {
		f.rows[answer.Rows[i].Key] = answer.Rows[i].Record.Timestamp.Millis
	}
	f.mu.Unlock()
	answer.Cover(sub)
	sub.Release()
	return nil
}

// showWhole shows everything anew until nothing was lost meanwhile, and returns how many
// gaps there were up to then.
func (f *follower) showWhole(t *testing.T) (gaps int) {
	for {
		gaps = f.gapped()
		require.NoError(t, f.show(deadline(t, 30*time.Second)))
		if f.gapped() == gaps {
			return gaps
		}
	}
}

func (f *follower) close() {
	f.mu.Lock()
	sub := f.sub
	f.sub = nil
	f.mu.Unlock()
	if sub != nil {
		sub.Close()
	}
}

type followerSink struct{ f *follower }

// Event implements Sink.
func (s *followerSink) Event(e *Event, _ bool) bool {
	f := s.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events++
	if e.Index <= f.index[e.Key] {
		f.broken = fmt.Sprintf("%s at %d after %d", e.Key, e.Index, f.index[e.Key])
	}
	f.index[e.Key] = e.Index
	if e.Record.IsTombstone() {
		delete(f.rows, e.Key)
	} else {
		f.rows[e.Key] = e.Record.Timestamp.Millis
	}
	return true
}

// Gap implements Sink.
func (s *followerSink) Gap() {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.gaps++
}

func (f *follower) has(rows int, millis int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.rows {
		if m != millis {
			return false
		}
	}
	return len(f.rows) == rows
}

func (f *follower) gapped() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gaps
}

func TestChangesOfAllGroupsReachSubscribersOnEveryNode(t *testing.T) {
	f := newFleet(t)
	f.nodes[2].put(f.nodes[2].router.NewSession(), 0, 20, 1)
	var all []*follower
	for _, n := range f.nodes {
		all = append(all, n.follow(t))
	}
	for i, n := range f.nodes {
		n.put(n.router.NewSession(), 0, 40, int64(i+2))
	}
	for _, c := range all {
		eventually(t, "all changes on "+c.n.name, func() bool { return c.has(40, 6) })
	}
	// What a client wrote itself is not told to it, wherever the group is.
	writer := all[0]
	writer.mu.Lock()
	writer.events = 0
	writer.mu.Unlock()
	writer.n.put(writer.s, 0, 40, 100)
	for _, c := range all[1:] {
		eventually(t, "the writer's changes on "+c.n.name, func() bool { return c.has(40, 100) })
	}
	all[1].n.put(all[1].s, 0, 40, 101)
	eventually(t, "the other's changes", func() bool { return writer.has(40, 101) })
	for _, c := range all {
		require.Zero(t, c.gaps)
		require.Empty(t, c.broken)
	}
	require.Equal(t, 40, writer.events)
	for _, c := range all {
		c.close()
	}
	for _, n := range f.nodes {
		eventually(t, n.name+" listens for nobody any more", func() bool { return !n.hub.Listening() })
	}
}

func TestTheLossOfAFeedIsAGap(t *testing.T) {
	for name, lose := range map[string]func(f *fleet, n *fleetNode, group uint32, holder *fleetNode){
		"holder killed": func(f *fleet, _ *fleetNode, _ uint32, holder *fleetNode) { f.net.Isolate(memnet.Reset, holder.name) },
		"holder silent": func(f *fleet, _ *fleetNode, _ uint32, holder *fleetNode) {
			f.net.Isolate(memnet.Blackhole, holder.name)
		},
		"group lost":   func(_ *fleet, _ *fleetNode, group uint32, holder *fleetNode) { holder.lose(group) },
		"group gained": func(_ *fleet, n *fleetNode, group uint32, _ *fleetNode) { n.hold(group) },
		"too much waiting": func(_ *fleet, _ *fleetNode, _ uint32, holder *fleetNode) {
			holder.put(holder.router.NewSession(), 0, 400, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, unforgiving, func(c *Config) { c.Remote.FeedBytes, c.Remote.Heartbeat = 1000, 500*time.Millisecond })
			n := f.nodes[0]
			n.put(n.router.NewSession(), 0, 40, 1)
			c := n.follow(t)
			group, holders := n.lacks()
			lose(f, n, group, holders[0])
			eventually(t, "a gap", func() bool { return c.gapped() > 0 })
			gaps := c.showWhole(t)
			var ops []Op
			key := keyOfGroup(group)
			if name != "holder killed" && name != "holder silent" { // the leader is gone with it
				ops = append(ops, op(key, 3))
				_, err := holders[1].router.Write(deadline(t, 30*time.Second), holders[1].router.NewSession(), ops)
				require.NoError(t, err)
				eventually(t, "what came after the gap", func() bool {
					// As long as too much waits, the feed may break again.
					if name == "too much waiting" && c.gapped() > gaps {
						gaps = c.showWhole(t)
					}
					c.mu.Lock()
					defer c.mu.Unlock()
					return c.rows[key] == 3
				})
			}
			require.Equal(t, gaps, c.gapped())
		})
	}
}

func TestWatchersOfACounterHearOfItsChangesEverywhere(t *testing.T) {
	f := newFleet(t)
	n := f.nodes[0]
	group, holders := n.lacks()
	name := keyOfGroup(group)
	w := n.router.WatchCounter(name)
	defer w.Close()
	ctx := deadline(t, 60*time.Second)
	for total := 1.0; total < 4; total++ {
		_, _, err := holders[1].router.AddToCounter(ctx, holders[1].router.NewSession(), name, 1, "")
		require.NoError(t, err)
		for got := 0.0; got < total; {
			select {
			case <-w.C:
			case <-ctx.Done():
				t.Fatalf("no notice of total %v", total)
			}
			state, err := n.router.Counter(ctx, n.router.NewSession(), name)
			require.NoError(t, err)
			got = 0
			for _, v := range state.Positive {
				got += v
			}
		}
	}
}

// TestFollowersAddUpToTheMapWhileFeedsBreak writes random keys while links break, and has
// followers on all nodes that are shown everything anew after each gap. In the end each of
// them has the map.
func TestFollowersAddUpToTheMapWhileFeedsBreak(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	f := newFleet(t, unforgiving, func(c *Config) { c.Remote.Forgive, c.Remote.AnswerBytes = 10*time.Millisecond, 300 })
	var all []*follower
	seen := map[*follower]int{}
	for _, n := range f.nodes {
		all = append(all, n.follow(t))
	}
	want := map[string]int64{}
	for i := range 300 {
		n := f.nodes[rng.IntN(fleetSize)]
		key := fmt.Sprintf("k%04d", rng.IntN(50))
		o := op(key, int64(i+1))
		if want[key] = int64(i + 1); rng.IntN(5) == 0 {
			o.Record.Value = nil
			delete(want, key)
		}
		if holder := f.node(f.cluster().Table.Groups[placement.GroupOf(key, 6)-1].Leader); rng.IntN(10) == 0 {
			// The links between a node and one that holds what it follows.
			other := f.nodes[rng.IntN(fleetSize)]
			f.net.CutBoth(memnet.Reset, holder.name, other.name)
			f.net.Heal()
		}
		_, err := n.router.Write(deadline(t, 60*time.Second), n.router.NewSession(), []Op{o})
		require.NoError(t, err)
		for _, c := range all {
			if gaps := c.gapped(); gaps > seen[c] {
				seen[c] = gaps
				// It is shown again below if it cannot be now.
				if c.show(deadline(t, 60*time.Second)) != nil {
					seen[c] = -1
				}
			}
		}
	}
	for _, c := range all {
		eventually(t, "the whole map on "+c.n.name, func() bool {
			if gaps := c.gapped(); gaps > seen[c] && c.show(deadline(t, 60*time.Second)) == nil {
				seen[c] = gaps
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			return fmt.Sprint(c.rows) == fmt.Sprint(want)
		})
		require.Empty(t, c.broken)
	}
	gaps := 0
	for _, c := range all {
		gaps += c.gapped()
	}
	t.Logf("%d gaps", gaps)
	require.Equal(t, len(want), len(slices.Compact(f.nodes[0].rows(t))))
}

var _ Sink = (*followerSink)(nil)
