package partitions

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/protocol"
)

// removals lists which groups were told to remove a tag, and with which key.
func (c *fakeCluster) removals(t *testing.T, tag string) map[uint32]command.ORRemove {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[uint32]command.ORRemove{}
	for group, cmds := range c.applied {
		for _, cmd := range cmds {
			if cmd.Kind != command.KindORRemove {
				continue
			}
			rem, err := command.DecodeORRemove(cmd)
			require.NoError(t, err)
			if rem.Tag == tag {
				found[group] = rem
			}
		}
	}
	return found
}

func TestTheRemovalOfATagThatItsKeysGroupHasNotSeenGoesToEveryGroup(t *testing.T) {
	c := newFakeCluster(t, 3)
	r := c.router(1)
	s := r.NewSession()
	c.refuse["k"] = protocol.CodeTooLarge
	verdicts, err := r.Write(deadline(t, 10*time.Second), s, []Op{
		{Map: "m", Key: "k", Remove: "known-1"}, {Map: "m", Key: "other", Remove: "new"}, {Map: "m", Remove: "stray", Homeless: true},
		{Map: "m", Key: "k", Remove: "new-2"},
	})
	require.NoError(t, err)
	require.Len(t, c.removals(t, "known-1"), 1)
	require.Len(t, c.removals(t, "stray"), 6)
	owner := placement.GroupOf("other", 6)
	got := c.removals(t, "new")
	require.Len(t, got, 6)
	for group, rem := range got {
		require.Equal(t, group != owner, rem.Homeless)
		require.Equal(t, group == owner, rem.Key == "other")
	}
	for i, refused := range []bool{true, false, false, true} {
		require.Equal(t, refused, verdicts[i].Refused(), "operation %d: one refusal of several results stands", i)
	}
	for group := uint32(1); group <= 6; group++ {
		require.Positive(t, s.index(group), "the session waits for every group that answered")
	}
}

func TestTheStampOfAnAddedRecordStaysAndDragsNoClock(t *testing.T) {
	c := newFakeCluster(t, 1)
	r := c.router(1)
	far := protocol.Timestamp{Millis: fakeNow + 3_600_000, NodeID: "c"}
	near := protocol.Timestamp{Millis: fakeNow + 59_000, NodeID: "c"}
	_, err := r.Write(deadline(t, 10*time.Second), r.NewSession(), []Op{
		{Map: "m", Key: "k", Add: &protocol.ORRecord{Tag: "a", Timestamp: far}},
		{Map: "m", Key: "k", Add: &protocol.ORRecord{Tag: "b", Timestamp: near}},
	})
	require.NoError(t, err)
	require.Equal(t, near, c.nodes["n1#1"].clock.Last())
	for _, cmd := range c.applied[placement.GroupOf("k", 6)] {
		add, err := command.DecodeORAdd(cmd)
		require.NoError(t, err)
		require.Contains(t, []protocol.Timestamp{far, near}, add.Record.Timestamp)
	}
}

func TestRemovalsThatAreKnownAreNotOfferedAgain(t *testing.T) {
	c := newFakeCluster(t, 1)
	require.Equal(t, []string{"a", "b"}, c.router(1).UnknownRemovals("m", []string{"a", "known-1", "b", "stray-1", "known-2"}))
}
