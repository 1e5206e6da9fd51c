package partitions

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/partitions/live"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/protocol/merkle"
)

// deaf is a sink that nobody listens to.
type deaf struct{}

func (deaf) Event(*Event, bool) bool { return true }
func (deaf) Gap()                    {}

// TestAReadIsNotOlderThanWhatWasShown has a replica take the place of one that was ahead of
// it: who follows a map here must not be taken back by the answer that mends a gap.
func TestAReadIsNotOlderThanWhatWasShown(t *testing.T) {
	r, g := newRealRouter(t)
	group := placement.GroupOf("k", 6)
	read := func() error {
		_, err := r.Tree(deadline(t, 50*time.Millisecond), r.NewSession(), "m", merkle.Records)
		return err
	}
	for i := range 3 {
		g.put(t, "k", rec(int64(i+1), 1))
	}
	require.NoError(t, read())
	require.EqualValues(t, 3, r.deps.Hub.Shown(group))

	g.index[group] = 2
	require.ErrorIs(t, read(), ErrUnavailable)
	g.index[group] = 3
	require.NoError(t, read())

	r.deps.Hub.Subscribe("m", "", live.Interest{}, deaf{})
	r.deps.Hub.Publish(&fsm.Changes{Group: group, Index: 7})
	require.ErrorIs(t, read(), ErrUnavailable)
	g.index[group] = 7
	require.NoError(t, read())
}
