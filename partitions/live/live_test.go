package live_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/partitions/live"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a Sink that notes what it was given and can refuse after a limit.
type recorder struct {
	mu    sync.Mutex
	keys  []string
	gaps  int
	limit int
}

func (r *recorder) Event(e *live.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limit > 0 && len(r.keys) == r.limit {
		return false
	}
	r.keys = append(r.keys, fmt.Sprintf("%s@%d/%d", e.Key, e.Group, e.Index))
	return true
}

func (r *recorder) Gap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps++
}

func (r *recorder) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.keys...)
}

func (r *recorder) gapped() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gaps
}

func startHub(t *testing.T) *live.Hub {
	hub := live.NewHub()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); hub.Run(done) }()
	t.Cleanup(func() { close(done); <-ended })
	return hub
}

func change(group uint32, index uint64, mapName, key, origin string) *fsm.Changes {
	return &fsm.Changes{Group: group, Index: index, List: []fsm.Change{
		{Index: index, Section: storage.SectionRecords, Map: mapName, Key: key, Origin: origin},
	}}
}

func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 10*time.Second, time.Millisecond)
}

func TestEventsAreHeldUntilReleaseAndThoseInTheSnapshotAreDropped(t *testing.T) {
	hub := startHub(t)
	sink, probe := &recorder{}, &recorder{}
	sub := hub.Subscribe("m", "me", sink)
	defer sub.Close()
	fence := hub.Subscribe("m", "", probe)
	defer fence.Close()
	fence.Release()

	hub.Publish(change(1, 5, "m", "in-snapshot", ""))
	hub.Publish(change(1, 6, "m", "after", ""))
	hub.Publish(change(2, 1, "m", "other-group", ""))
	eventually(t, func() bool { return len(probe.seen()) == 3 })
	require.Empty(t, sink.seen(), "nothing may precede the snapshot")

	sub.Covered(1, 5)
	sub.Release()
	require.Equal(t, []string{"after@1/6", "other-group@2/1"}, sink.seen())
	hub.Publish(change(1, 7, "m", "live", ""))
	eventually(t, func() bool { return len(sink.seen()) == 3 })
}

func TestTheWriterAndOtherMapsAreLeftOut(t *testing.T) {
	hub := startHub(t)
	mine, others := &recorder{}, &recorder{}
	a, b := hub.Subscribe("m", "a", mine), hub.Subscribe("m", "b", others)
	defer a.Close()
	defer b.Close()
	a.Release()
	b.Release()
	hub.Publish(change(1, 1, "other", "x", ""))
	hub.Publish(change(1, 2, "m", "by-a", "a"))
	hub.Publish(change(1, 3, "m", "by-nobody", ""))
	eventually(t, func() bool { return len(others.seen()) == 2 })
	require.Equal(t, []string{"by-nobody@1/3"}, mine.seen())
}

func TestASinkThatRefusesHearsNothingMore(t *testing.T) {
	hub := startHub(t)
	full, probe := &recorder{limit: 1}, &recorder{}
	a, b := hub.Subscribe("m", "", full), hub.Subscribe("m", "", probe)
	defer a.Close()
	defer b.Close()
	a.Release()
	b.Release()
	for i := range uint64(5) {
		hub.Publish(change(1, i+1, "m", "k", ""))
	}
	eventually(t, func() bool { return len(probe.seen()) == 5 })
	require.Equal(t, []string{"k@1/1"}, full.seen())
}

func TestAReplacedReplicaEndsEverySubscriptionWithAGap(t *testing.T) {
	hub := startHub(t)
	sink := &recorder{}
	sub := hub.Subscribe("m", "", sink)
	defer sub.Close()
	sub.Release()
	hub.Publish(&fsm.Changes{Group: 3, Index: 100, Reset: true})
	eventually(t, func() bool { return sink.gapped() == 1 })
	hub.Publish(change(1, 101, "m", "late", ""))
	next := &recorder{}
	again := hub.Subscribe("m", "", next)
	defer again.Close()
	again.Release()
	hub.Publish(change(1, 102, "m", "fresh", ""))
	eventually(t, func() bool { return len(next.seen()) > 0 })
	require.Empty(t, sink.seen())
	require.Equal(t, 1, sink.gapped())
}

func TestAnOverfullInboxIsAGapNotASilentLoss(t *testing.T) {
	hub := live.NewHub()
	sink := &recorder{}
	sub := hub.Subscribe("m", "", sink)
	defer sub.Close()
	sub.Release()
	for i := range uint64(10_000) {
		hub.Publish(change(1, i+1, "m", "k", "")) // nobody dispatches: must not block
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); hub.Run(done) }()
	eventually(t, func() bool { return sink.gapped() == 1 })
	close(done)
	<-ended
}

func TestTooManyEventsBeforeTheSnapshotAreAGap(t *testing.T) {
	hub := startHub(t)
	sink, probe := &recorder{}, &recorder{}
	held, free := hub.Subscribe("m", "", sink), hub.Subscribe("m", "", probe)
	defer held.Close()
	defer free.Close()
	free.Release()
	for i := range uint64(5_000) {
		hub.Publish(change(1, i+1, "m", "k", ""))
		if i%1000 == 0 {
			eventually(t, func() bool { return len(probe.seen()) == int(i)+1 })
		}
	}
	eventually(t, func() bool { return sink.gapped() == 1 })
	held.Release()
	require.Empty(t, sink.seen())
}

func TestAClosedSubscriptionIsSilent(t *testing.T) {
	hub := startHub(t)
	sink, probe := &recorder{}, &recorder{}
	sub, other := hub.Subscribe("m", "", sink), hub.Subscribe("m", "", probe)
	defer other.Close()
	sub.Release()
	other.Release()
	sub.Close()
	sub.Close()
	hub.Publish(change(1, 1, "m", "k", ""))
	eventually(t, func() bool { return len(probe.seen()) == 1 })
	require.Empty(t, sink.seen())
}
