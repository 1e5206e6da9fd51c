package partitions

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// realGroups are the six groups of a cluster of one, with real state machines.
type realGroups struct {
	// now stamps entries, fakeNow if it is nil.
	now func() int64
	*fakeNode
	machines map[uint32]*fsm.Machine
	index    map[uint32]uint64
	proposed map[uint32]int
}

// newRealRouter is a router over groups with real state machines.
func newRealRouter(t testing.TB) (*Router, *realGroups) {
	c := newFakeCluster(t, 1)
	r := c.router(1)
	g := &realGroups{fakeNode: c.nodes["n1#1"], machines: map[uint32]*fsm.Machine{}, index: map[uint32]uint64{}, proposed: map[uint32]int{}}
	store := memory.New(memory.Config{})
	flusher, err := writebehind.New(writebehind.DefaultConfig(), writebehind.Deps{Logger: hclog.NewNullLogger(), Store: store})
	require.NoError(t, err)
	for group := uint32(1); group <= 6; group++ {
		g.machines[group], err = fsm.Open(fsm.DefaultConfig(group), fsm.Deps{Logger: hclog.NewNullLogger(), Store: store, Flusher: flusher})
		require.NoError(t, err)
	}
	r.deps.Groups = g
	return r, g
}

func (g *realGroups) Replica(group uint32) (Replica, bool) { return g.machines[group], true }

func (g *realGroups) WaitApplied(ctx context.Context, group uint32, index uint64) error {
	if g.index[group] < index {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (g *realGroups) apply(t *testing.T, key string, cmd command.Raw) {
	t.Helper()
	g.applyTo(placement.GroupOf(key, 6), cmd)
}

func (g *realGroups) applyTo(group uint32, cmd command.Raw) {
	g.index[group]++
	now := int64(fakeNow)
	if g.now != nil {
		now = g.now()
	}
	entry := command.AppendEntry(nil, protocol.Timestamp{Millis: now}, []command.Raw{cmd})
	if _, err := g.machines[group].Apply([]fsm.Entry{{Index: g.index[group], Term: 1, Data: entry}}); err != nil {
		panic(err)
	}
}

func (g *realGroups) put(t *testing.T, key string, rec protocol.Record) {
	g.apply(t, key, command.EncodePut(command.Put{Map: "m", Key: key, Record: rec}))
}

func rec(millis int64, value ...byte) protocol.Record {
	return protocol.Record{Value: value, Timestamp: protocol.Timestamp{Millis: millis, NodeID: "c"}}
}

// TestDeltasAddUpToTheMap lets a client follow a map by deltas of every size while it
// changes, and compares what it has in the end.
func TestDeltasAddUpToTheMap(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	r, g := newRealRouter(t)
	have, want := map[string]protocol.Record{}, map[string]protocol.Record{}
	var since protocol.Timestamp
	take := func(maxBytes int) bool {
		records, next, more, err := r.Delta(t.Context(), r.NewSession(), "m", since, maxBytes)
		require.NoError(t, err)
		for _, kr := range records {
			if met, ok := have[kr.Key]; !ok || kr.Record.Timestamp.Compare(met.Timestamp) > 0 {
				have[kr.Key] = kr.Record
			}
		}
		since = next
		return more
	}
	for i := range int64(2000) {
		key := fmt.Sprint("k", rnd.IntN(300))
		record := rec(i+1, byte(i&0x7f))
		if rnd.IntN(4) == 0 {
			record.Value = nil
		}
		g.put(t, key, record)
		want[key] = record
		if rnd.IntN(20) == 0 {
			take(1 + rnd.IntN(20_000))
		}
	}
	for take(1000) {
	}
	require.Equal(t, want, have)
	records, _, more, err := r.Delta(t.Context(), r.NewSession(), "m", since, 1000)
	require.NoError(t, err)
	require.False(t, more)
	require.Empty(t, records, "nothing changed since")
	g.put(t, "late", rec(1, 5)) // stamped long ago
	records, _, _, err = r.Delta(t.Context(), r.NewSession(), "m", since, 1000)
	require.NoError(t, err)
	require.Len(t, records, 1, "what counts is when the server stored it")
}

func TestAStampThatIsNotOursGivesEverything(t *testing.T) {
	r, g := newRealRouter(t)
	for i := range 10 {
		g.put(t, fmt.Sprint("k", i), rec(1, 1))
	}
	_, next, _, err := r.Delta(t.Context(), r.NewSession(), "m", protocol.Timestamp{}, 1<<20)
	require.NoError(t, err)
	require.NotContains(t, next.NodeID, ":")
	own := parseProgress(next.NodeID, "c", 6)
	require.Equal(t, next.NodeID, own.text("c"))
	ahead := progress{indexes: []uint64{9999, 9999, 9999, 9999, 9999, 9999}}
	for _, nodeID := range []string{"", "service-server-node", own.text("another cluster"), next.NodeID + ".0", "d1.x.1.2.3.4.5.6.7.8.9", ahead.text("c")} {
		synced := protocol.Timestamp{Millis: 5, NodeID: nodeID}
		records, _, _, err := r.Delta(t.Context(), r.NewSession(), "m", synced, 1<<20)
		require.NoError(t, err)
		require.Len(t, records, 10, nodeID)
	}
}

func TestTheTreeIsThatOfAllGroupsTogether(t *testing.T) {
	r, g := newRealRouter(t)
	var tree merkle.Tree
	for i := range 200 {
		key := fmt.Sprint("k", i)
		g.put(t, key, rec(int64(i+1), 1))
		tree.Update(merkle.BucketOf(key), 0, merkle.LWWItem(key, rec(int64(i+1)).Timestamp), 1, 0)
	}
	want := new(merkle.Leaves)
	tree.AddTo(want)
	s := r.NewSession()
	got, err := r.Tree(t.Context(), s, "m", merkle.Records)
	require.NoError(t, err)
	require.Equal(t, want, got)
	leaf := map[string]protocol.Record{}
	_, end, err := r.LeafRecords(t.Context(), s, "m", merkle.BucketOf("k7"), LeafPlace{}, func(key string, rec protocol.Record) bool {
		leaf[key] = rec.Clone()
		return true
	})
	require.NoError(t, err)
	require.True(t, end)
	require.Equal(t, rec(8, 1), leaf["k7"])

	add := func(key, tag string) {
		cmd, _ := command.AppendORAdd(nil, command.ORAdd{Map: "s", Key: key, Record: protocol.ORRecord{Tag: tag, Value: []byte{1}}})
		g.apply(t, key, cmd)
	}
	add("a", "t1")
	add("b", "t2")
	_, err = r.Sets(t.Context(), s, "s", []string{"b", "b", "b", "b"}, 500)
	require.ErrorIs(t, err, ErrTooMuch, "the same key again and again costs as much as others")
	entries, err := r.Sets(t.Context(), s, "s", []string{"b", "x", "a"}, 1<<20)
	require.NoError(t, err)
	require.Equal(t, []string{"b", "x", "a"}, []string{entries[0].Key, entries[1].Key, entries[2].Key})
	require.Equal(t, "t2", entries[0].Records[0].Tag)
	require.Empty(t, entries[1].Records)
	sets := 0
	_, _, err = r.LeafSets(t.Context(), s, "s", merkle.BucketOf("a"), LeafPlace{}, func(protocol.OREntry) bool { sets++; return true })
	require.NoError(t, err)
	require.Equal(t, 1, sets)
	require.Equal(t, []string{"t9"}, r.UnknownRemovals("s", []string{"t9"}))
}

// FuzzProgress holds that any text that clients send back is nothing, or one of ours.
func FuzzProgress(f *testing.F) {
	p := progress{indexes: []uint64{1, 2, 3, 4, 5, 6}, group: 2, bucket: 77, mark: 9}
	f.Add(p.text("c"))
	f.Add("d2.0.0.0.0.0.0.0.9.zzzzzzzzzzzzz.0.azA")
	f.Fuzz(func(t *testing.T, text string) {
		p := parseProgress(text, "c", 6)
		if len(p.indexes) != 6 || p.group > 6 {
			t.Fatalf("%q is %+v", text, p)
		}
		again := parseProgress(p.text("c"), "c", 6)
		require.Equal(t, p, again)
	})
}
