package partitions

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
)

// Propose applies what a collector proposes.
func (g *realGroups) Propose(group uint32, cmds []raftnode.Command) (raftnode.Proposal, error) {
	if g.fail(group, 0) != "" {
		return nil, raftnode.ErrBusy
	}
	g.proposed[group]++
	for _, cmd := range cmds {
		g.applyTo(group, cmd)
	}
	return &fakeProposal{cluster: g.cluster, group: group}, nil
}

func (g *realGroups) fail(group uint32, attempt int) string { return g.cluster.fail(group, attempt) }

func TestOldTombstonesAreCollectedInEveryGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := newRealRouter(t)
		r.cfg.CollectInterval, r.cfg.CollectAge = time.Minute, time.Hour
		start := time.Now()
		r.deps.Physical = func() int64 { return fakeNow + time.Since(start).Milliseconds() }
		for i := range 3000 {
			g.put(t, fmt.Sprint("k", i), rec(1, 1))
			g.put(t, fmt.Sprint("k", i), rec(2)) // deleted
		}
		rem, _ := command.AppendORRemove(nil, command.ORRemove{Map: "s", Tag: "t", Homeless: true})
		g.apply(t, "x", rem)
		told := 0
		defer r.HorizonChanged(func() { told++ })()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Collect(ctx) }()
		defer func() { cancel(); <-ended }()

		time.Sleep(59*time.Minute + time.Second)
		require.Zero(t, horizonOf(t, r).CollectedMillis, "nothing is old yet")
		require.Equal(t, int64(fakeNow/1000), horizonOf(t, r).Epoch, "but the time before is closed")
		require.Zero(t, told)
		time.Sleep(2 * time.Minute)
		h := horizonOf(t, r)
		require.Equal(t, int64(fakeNow), h.CollectedMillis)
		require.GreaterOrEqual(t, h.PrunedMillis, int64(fakeNow))
		require.True(t, h.Missed(fakeNow/1000))
		require.False(t, h.Missed(fakeNow/1000+1))
		require.Equal(t, 1, told)
		for group, m := range g.machines {
			graves, err := m.Graves(1<<60, 10)
			require.NoError(t, err)
			require.Empty(t, graves, "group %d", group)
		}
		rows := 0
		_, err := g.machines[1].Scan("m", "", func(string, protocol.Record) bool { rows++; return true })
		require.NoError(t, err)
		require.Zero(t, rows)
	})
}

func TestOnlyLeadersCollectAndAFailureIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := newRealRouter(t)
		r.cfg.CollectInterval, r.cfg.CollectAge = time.Minute, time.Millisecond
		g.cluster.set(func() { g.cluster.leader[2] = "other#1" })
		broken := true
		g.cluster.fail = func(group uint32, _ int) string {
			if group == 3 && broken {
				return "busy"
			}
			return ""
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Collect(ctx) }()
		time.Sleep(90 * time.Second)
		require.Equal(t, map[uint32]int{1: 1, 4: 1, 5: 1, 6: 1}, g.proposed)
		require.Zero(t, horizonOf(t, r).Epoch, "the time before is not closed in all groups")
		broken = false
		time.Sleep(time.Minute)
		require.Equal(t, 1, g.proposed[3])
		cancel()
		<-ended
	})
}

// Leaders collect in turn. While deletions go on, what one group is through with is always
// behind what another one has collected last; it is told nevertheless.
func TestWhatAllGroupsPassedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := newRealRouter(t)
		r.cfg.CollectInterval, r.cfg.CollectAge = time.Minute, time.Hour
		start := time.Now()
		r.deps.Physical = func() int64 { return fakeNow + time.Since(start).Milliseconds() }
		g.now = r.deps.Physical
		g.cluster.set(func() { g.cluster.leader[3] = "other#1" })
		told := 0
		defer r.HorizonChanged(func() { told++ })()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Collect(ctx) }()
		defer func() { cancel(); <-ended }()
		time.Sleep(30 * time.Second)
		for i := range 90 {
			through := g.now() - r.cfg.CollectAge.Milliseconds()
			graves, err := g.machines[3].Graves(through, 1000)
			require.NoError(t, err)
			g.applyTo(3, command.EncodeCollect(command.Collect{Graves: graves, ThroughMillis: through}))
			time.Sleep(15 * time.Second)
			for k := range 30 {
				g.put(t, fmt.Sprint("k", i, "-", k), rec(int64(2+i))) // deleted at once
			}
			time.Sleep(45 * time.Second)
		}
		require.Greater(t, told, 20)
	})
}

// horizonOf is what a router says of the whole cluster.
func horizonOf(t *testing.T, r *Router) Horizon {
	t.Helper()
	h, err := r.Horizon()
	require.NoError(t, err)
	return h
}
