package partitions

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/partitions/locks"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/protocol"
)

// fencedOps are writes of a batch with the tokens of one lock, 0 for none.
func fencedOps(tokens ...uint64) []Op {
	var ops []Op
	for _, token := range tokens {
		op := Op{Map: "m", Key: "k", Record: protocol.Record{Value: []byte{1}}, Level: protocol.LevelReplicated}
		if token > 0 {
			op.Fence = Fence{Lock: "l", Token: token}
		}
		ops = append(ops, op)
	}
	return ops
}

// codes are those of the verdicts on a write.
func codes(t *testing.T, r *Router, ops []Op) (list []protocol.Code) {
	t.Helper()
	verdicts, err := r.Write(deadline(t, 10*time.Second), r.NewSession(), ops)
	require.NoError(t, err)
	for _, v := range verdicts {
		list = append(list, v.Code)
	}
	return list
}

func TestAFenceWithATokenThatNobodyWasGivenIsRefused(t *testing.T) {
	c := newFakeCluster(t, 3)
	c.set(func() { c.token = 7 })
	r := c.router(1)
	group := placement.GroupOf("l", 6)

	require.Equal(t, []protocol.Code{0, 0, protocol.CodeStale}, codes(t, r, fencedOps(0, 7, 8)))
	require.Equal(t, []protocol.Code{protocol.CodeStale}, codes(t, r, fencedOps(1<<53-1)), "alone in its batch")
	c.set(func() { c.token = 8 })
	require.Equal(t, []protocol.Code{0}, codes(t, r, fencedOps(8)), "once it is given")
	require.Equal(t, []string{"k", "k", "k"}, c.keys(t))

	// Without an answer of the lock's group nothing is proposed, unless the token is known.
	c.set(func() { c.leader[group] = "" })
	_, err := r.Write(deadline(t, 300*time.Millisecond), r.NewSession(), fencedOps(0, 9))
	require.ErrorIs(t, err, ErrUnavailable)
	require.Len(t, c.keys(t), 3)
	require.NotEqual(t, group, placement.GroupOf("k", 6))
	require.Equal(t, []protocol.Code{0}, codes(t, r, fencedOps(8)))
	c.set(func() { c.nodes["n1#1"].token = 9 })
	require.Equal(t, []protocol.Code{0}, codes(t, r, fencedOps(9)), "seen by the replica here")
}

func TestAFenceWithoutATokenIsRefused(t *testing.T) {
	c := newFakeCluster(t, 3)
	ops := fencedOps(1)
	ops[0].Fence.Token = 0
	require.Equal(t, []protocol.Code{protocol.CodeStale}, codes(t, c.router(1), ops))
	require.Empty(t, c.keys(t))
}

func TestATokenThatIsKnownCostsNoMark(t *testing.T) {
	c := newFakeCluster(t, 3)
	c.set(func() { c.nodes["n1#1"].token = 5 })
	codes(t, c.router(1), fencedOps(5, 4))
	require.Zero(t, c.count(command.KindRead))

	// Nor does the one that a client of this node was granted, before its replica sees that.
	c.set(func() { c.token = 6 })
	r := c.router(1)
	token, err := r.AcquireLock(deadline(t, 10*time.Second), r.NewSession(), locks.Ask{Name: "l", TTLMillis: 1000})
	require.NoError(t, err)
	require.Equal(t, []protocol.Code{0}, codes(t, r, fencedOps(token)))
	require.Zero(t, c.count(command.KindRead))
}

func TestAWriteAsksTheGroupOfALockOnce(t *testing.T) {
	c := newFakeCluster(t, 3)
	ops := fencedOps(slices.Repeat([]uint64{1 << 50}, 1000)...)
	groups := map[uint32]bool{}
	for i := range ops {
		ops[i].Fence.Lock = fmt.Sprint("l", i%20)
		groups[placement.GroupOf(ops[i].Fence.Lock, 6)] = true
	}
	require.Equal(t, slices.Repeat([]protocol.Code{protocol.CodeStale}, len(ops)), codes(t, c.router(1), ops))
	require.Equal(t, len(groups), c.count(command.KindRead))
}
