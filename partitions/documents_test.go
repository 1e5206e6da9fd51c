package partitions

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
)

// patience bounds the waits of these tests for what must come.
const patience = 30 * time.Second

func TestADocumentIsPutWhenThisNodeFollowsIt(t *testing.T) {
	c := newFakeCluster(t, 2)
	r := c.router(1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := r.PutDocument(ctx, "policies", 0, []byte("x"))
	require.ErrorIs(t, err, ErrUnavailable, "the system group has no leader")

	c.set(func() { c.leader[0] = "n2#1" })
	state := r.deps.Cluster()
	next, refusal := state.PutDocument(0, system.Document{Name: "policies", Value: []byte("x")})
	require.Nil(t, refusal)
	followed := false
	r.deps.Cluster = func() *system.State {
		c.mu.Lock()
		defer c.mu.Unlock()
		if followed {
			return next
		}
		return state
	}
	done := make(chan error, 1)
	go func() {
		version, err := r.PutDocument(ctx, "policies", 0, []byte("x"))
		if err == nil && version != 1 {
			t.Errorf("version %d, want 1", version)
		}
		done <- err
	}()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.applied[0]) == 1
	}, patience, time.Millisecond)
	select {
	case err := <-done:
		t.Fatalf("put before this node follows it: %v", err)
	default:
	}
	c.set(func() { followed = true })
	r.ClusterChanged()
	require.NoError(t, <-done)
	value, version := r.Document("policies")
	require.Equal(t, "x", string(value))
	require.Equal(t, uint64(1), version)

	c.set(func() { c.refuse["policies"] = protocol.CodeStale })
	_, err = r.PutDocument(ctx, "policies", 1, []byte("y"))
	require.ErrorIs(t, err, ErrConflict)
}

func TestDocumentsAreFreshWhenThisNodeHasAppliedAMark(t *testing.T) {
	c := newFakeCluster(t, 2)
	r := c.router(1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.ErrorIs(t, r.FreshDocuments(ctx), ErrUnavailable, "the system group has no leader")
	c.set(func() { c.leader[0] = "n2#1" })
	waited := &waitingGroups{Groups: r.deps.Groups}
	r.deps.Groups = waited
	require.NoError(t, r.FreshDocuments(ctx))
	require.Equal(t, []uint32{0}, waited.groups)
	waited.err = context.DeadlineExceeded
	require.ErrorIs(t, r.FreshDocuments(ctx), ErrUnavailable)
}

// waitingGroups notes which groups are waited for.
type waitingGroups struct {
	Groups
	groups []uint32
	err    error
}

func (g *waitingGroups) WaitApplied(_ context.Context, group uint32, _ uint64) error {
	g.groups = append(g.groups, group)
	return g.err
}

func TestInventoryAndStored(t *testing.T) {
	r, g := newRealRouter(t)
	s := r.NewSession()
	g.put(t, "a", rec(1, 7))
	g.put(t, "b", rec(2, 8, 9))
	g.put(t, "b", rec(3))
	expired := rec(1, 7)
	expired.TTLMillis = 1
	g.put(t, "old", expired)
	add := func(key, tag string) {
		cmd, _ := command.AppendORAdd(nil, command.ORAdd{Map: "sets", Key: key, Record: protocol.ORRecord{Value: []byte{5}, Timestamp: protocol.Timestamp{Millis: 1, NodeID: "c"}, Tag: tag}})
		g.apply(t, key, cmd)
	}
	add("x", "t1")
	add("x", "t2")
	remove, _ := command.AppendORRemove(nil, command.ORRemove{Map: "sets", Key: "x", Tag: "t2"})
	g.apply(t, "x", remove)

	require.Equal(t, []string{"m", "sets"}, r.MapNames())
	stat, err := r.Inventory(t.Context(), "m")
	require.NoError(t, err)
	require.Equal(t, 1, stat.Entries)
	require.Equal(t, 1, stat.Tombstones)
	require.Equal(t, len("a")+1, stat.Bytes)
	require.True(t, stat.Records)
	require.False(t, stat.Sets)
	require.Equal(t, 1, stat.Partitions[protocol.Partition("a")])
	stat, err = r.Inventory(t.Context(), "sets")
	require.NoError(t, err)
	require.Equal(t, 1, stat.Entries)
	require.Equal(t, 1, stat.Tombstones)
	require.True(t, stat.Sets)

	for _, c := range []struct {
		op   Op
		want Stored
	}{
		{Op{Map: "m", Key: "a", Record: rec(9, 1)}, Stored{Value: []byte{7}}},
		{Op{Map: "m", Key: "b", Record: rec(9, 1)}, Stored{}},
		{Op{Map: "m", Key: "old", Record: rec(9, 1)}, Stored{}},
		{Op{Map: "m", Key: "none"}, Stored{}},
		{Op{Map: "sets", Key: "x", Remove: "t1"}, Stored{Value: []byte{5}}},
		{Op{Map: "sets", Key: "x", Remove: "t2"}, Stored{}},
		{Op{Map: "sets", Key: "wrong", Remove: "t1"}, Stored{Unknown: true}},
		{Op{Map: "sets", Remove: "t1", Homeless: true}, Stored{Unknown: true}},
		{Op{Map: "sets", Remove: "never", Homeless: true}, Stored{}},
		{Op{Map: "sets", Key: "y", Add: &protocol.ORRecord{Tag: "t1"}}, Stored{Unknown: true}},
		{Op{Map: "sets", Key: "y", Add: &protocol.ORRecord{Tag: "new"}}, Stored{}},
	} {
		got, err := r.Stored(t.Context(), s, &c.op)
		require.NoError(t, err)
		if c.op.Map == "m" {
			c.want.Guard = GuardOf(c.want.Value)
		}
		if c.op.Key == "old" {
			c.want.Guard = GuardOf([]byte{7}) // what has expired is still what is replaced
		}
		require.Equal(t, c.want, got, "%+v", c.op)
	}
}

func TestThePaceOfCollectingChangesWhileItRuns(t *testing.T) {
	c := newFakeCluster(t, 1, func(cfg *Config) { cfg.CollectInterval = time.Hour })
	r := c.router(1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Collect(ctx)
	}()
	r.SetCollectInterval(time.Millisecond)
	r.SetCollectInterval(time.Millisecond)
	require.Eventually(t, func() bool { return len(r.collectPaced) == 0 }, patience, time.Millisecond, "the new pace is taken")
	cancel()
	<-ended
}
