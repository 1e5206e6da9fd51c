package live_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/query"
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

func (r *recorder) Event(e *live.Event, _ bool) bool {
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
	sub := hub.Subscribe("m", "me", live.Interest{}, sink)
	defer sub.Close()
	fence := hub.Subscribe("m", "", live.Interest{}, probe)
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
	a, b := hub.Subscribe("m", "a", live.Interest{}, mine), hub.Subscribe("m", "b", live.Interest{}, others)
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

// valued is the change of a record from one value of field "g" to another; nil for none.
func valued(t *testing.T, index uint64, key string, from, to any, origin string) *fsm.Changes {
	t.Helper()
	c := change(1, index, "m", key, origin)
	value := func(v any) msgp.Raw {
		if v == nil {
			return nil
		}
		b, err := msgp.AppendIntf(nil, map[string]any{"g": v})
		require.NoError(t, err)
		return b
	}
	c.List[0].Old, c.List[0].Existed, c.List[0].Record.Value = value(from), from != nil, value(to)
	return c
}

func TestANarrowSubscriptionHearsOfItsValuesOnly(t *testing.T) {
	hub := startHub(t)
	compile := func(op string, value any) live.Interest {
		object, err := msgp.AppendIntf(nil, map[string]any{"predicate": map[string]any{"op": op, "attribute": "g", "value": value}})
		require.NoError(t, err)
		q, err := query.Compile(object, query.Options{})
		require.NoError(t, err)
		return live.Interest{Rows: q.Interest()}
	}
	one, list, all, mine := &recorder{}, &recorder{}, &recorder{}, &recorder{}
	own := compile("eq", 1)
	own.Own = true
	var subs []*live.Subscription
	for sink, want := range map[*recorder]live.Interest{one: compile("eq", 1), list: compile("in", []any{1, "x"}), all: {}, mine: own} {
		s := hub.Subscribe("m", "me", want, sink)
		s.Release()
		subs = append(subs, s)
	}
	hub.Publish(valued(t, 1, "a", nil, 1.0, ""))
	hub.Publish(valued(t, 2, "b", nil, 2, ""))
	hub.Publish(valued(t, 3, "a", 1, "x", ""))
	hub.Publish(valued(t, 4, "a", "x", nil, ""))
	hub.Publish(valued(t, 5, "c", nil, 1, "me"))
	set := change(1, 6, "m", "set", "")
	set.List[0].Section, set.List[0].Removed = storage.SectionSets, "tag"
	hub.Publish(set)
	eventually(t, func() bool { return len(all.seen()) == 5 })
	eventually(t, func() bool { return len(mine.seen()) == 4 })
	eventually(t, func() bool { return len(list.seen()) == 4 })
	eventually(t, func() bool { return len(one.seen()) == 3 })
	require.Equal(t, []string{"a@1/1", "a@1/3", "set@1/6"}, one.seen())
	require.Equal(t, []string{"a@1/1", "a@1/3", "a@1/4", "set@1/6"}, list.seen())
	require.Equal(t, []string{"a@1/1", "a@1/3", "c@1/5", "set@1/6"}, mine.seen())
	require.Equal(t, []string{"a@1/1", "b@1/2", "a@1/3", "a@1/4", "set@1/6"}, all.seen())
	hub.Publish(&fsm.Changes{Group: 1, Reset: true})
	for _, sink := range []*recorder{one, list, all, mine} {
		eventually(t, func() bool { return sink.gapped() == 1 })
	}
	for _, s := range subs {
		s.Close()
		s.Close()
	}
	require.False(t, hub.Listening())
}

func TestASinkThatRefusesHearsNothingMore(t *testing.T) {
	hub := startHub(t)
	full, probe := &recorder{limit: 1}, &recorder{}
	a, b := hub.Subscribe("m", "", live.Interest{}, full), hub.Subscribe("m", "", live.Interest{}, probe)
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
	sub := hub.Subscribe("m", "", live.Interest{}, sink)
	defer sub.Close()
	sub.Release()
	hub.Publish(&fsm.Changes{Group: 3, Index: 100, Reset: true})
	eventually(t, func() bool { return sink.gapped() == 1 })
	hub.Publish(change(1, 101, "m", "late", ""))
	next := &recorder{}
	again := hub.Subscribe("m", "", live.Interest{}, next)
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
	sub := hub.Subscribe("m", "", live.Interest{}, sink)
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
	held, free := hub.Subscribe("m", "", live.Interest{}, sink), hub.Subscribe("m", "", live.Interest{}, probe)
	defer held.Close()
	defer free.Close()
	free.Release()
	for i := range uint64(33_000) {
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
	sub, other := hub.Subscribe("m", "", live.Interest{}, sink), hub.Subscribe("m", "", live.Interest{}, probe)
	defer other.Close()
	sub.Release()
	other.Release()
	sub.Close()
	sub.Close()
	hub.Publish(change(1, 1, "m", "k", ""))
	eventually(t, func() bool { return len(probe.seen()) == 1 })
	require.Empty(t, sink.seen())
}
