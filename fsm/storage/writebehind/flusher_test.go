package writebehind_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSource is a queue of batches with one item each.
type fakeSource struct {
	group   uint32
	mu      sync.Mutex
	applied uint64
	// open is the number of items applied and not sealed.
	open    int
	sealed  []storage.Batch
	flushed storage.Mark
}

func (s *fakeSource) Group() uint32 { return s.group }

// change applies one entry that changes one item.
func (s *fakeSource) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied++
	s.open++
}

// drop forgets the open batch.
func (s *fakeSource) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = 0
}

func (s *fakeSource) Seal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == 0 {
		return
	}
	b := storage.Batch{Group: s.group, Mark: storage.Mark{Index: s.applied}}
	for i := range s.open {
		b.Items = append(b.Items, storage.Item{Key: storage.Key{Section: 1, Bytes: fmt.Sprint(i)}, Value: fmt.Append(nil, s.applied)})
	}
	s.sealed, s.open = append(s.sealed, b), 0
}

func (s *fakeSource) Oldest(limit int) (b storage.Batch, cuts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, next := range s.sealed {
		if cuts > 0 && len(b.Items)+len(next.Items) > limit {
			break
		}
		b = storage.Batch{Group: s.group, Items: append(b.Items, next.Items...), Mark: next.Mark}
		cuts++
	}
	seen := map[storage.Key]bool{}
	b.Items = slices.DeleteFunc(b.Items, func(it storage.Item) bool {
		repeat := seen[it.Key]
		seen[it.Key] = true
		return repeat
	})
	return b, cuts
}

func (s *fakeSource) Written(cuts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushed = s.sealed[cuts-1].Mark
	s.sealed = s.sealed[cuts:]
}

func (s *fakeSource) Flushed() storage.Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushed
}

// PendingBytes says that an item is of 1000 bytes.
func (s *fakeSource) PendingBytes() int { return 1000 * s.Pending() }

func (s *fakeSource) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.open
	for _, b := range s.sealed {
		n += len(b.Items)
	}
	return n
}

// spyStore records what is written, and fails or waits when told to.
type spyStore struct {
	storage.Store
	mu     sync.Mutex
	writes [][]storage.Batch
	err    error
	delay  time.Duration
}

func (s *spyStore) Write(batches []storage.Batch) error {
	if s.delay > 0 {
		time.Sleep(s.delay) // virtual time: a slow disk
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, slices.Clone(batches))
	if s.err != nil {
		return s.err
	}
	return s.Store.Write(batches)
}

func (s *spyStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.writes)
}

type bench struct {
	*testing.T
	store   *spyStore
	flusher *writebehind.Flusher
	sources []*fakeSource
}

// start runs a flusher over the given number of sources until the test ends.
func start(t *testing.T, cfg writebehind.Config, groups int) *bench {
	t.Helper()
	b := &bench{T: t, store: &spyStore{Store: memory.New(memory.Config{})}}
	var err error
	b.flusher, err = writebehind.New(cfg, writebehind.Deps{Logger: hclog.NewNullLogger(), Store: b.store, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	for g := range groups {
		s := &fakeSource{group: uint32(groups - g)}
		b.sources = append(b.sources, s)
		if err := b.flusher.Register(s); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.flusher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, b.store.err) {
			t.Errorf("Run = %v", err)
		}
	})
	return b
}

func (b *bench) expectMark(group uint32, want uint64) {
	b.Helper()
	r, err := b.store.NewReader()
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	if m, err := r.Mark(group); err != nil || m.Index != want {
		b.Errorf("the store holds group %d at %d, %v; want %d", group, m.Index, err, want)
	}
}

func TestEverythingIsWrittenAtTheTickTheLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, writebehind.DefaultConfig(), 2)
		b.sources[0].change()
		b.sources[0].change()
		b.sources[1].change()
		b.flusher.Notify(false)
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		b.expectMark(2, 0)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		b.expectMark(2, 2)
		b.expectMark(1, 1)
		if n := b.store.count(); n != 1 {
			t.Errorf("%d transactions, want one for all groups", n)
		}
		if n := b.flusher.Pending(); n != 0 {
			t.Errorf("%d items pending", n)
		}
	})
}

func TestSealedBatchesAreWrittenAtOnceWhenAQuarterOfTheCapacityIsDirty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := writebehind.DefaultConfig()
		cfg.Capacity = 16
		b := start(t, cfg, 1)
		s := b.sources[0]
		for range 3 {
			s.change()
			s.Seal()
			b.flusher.Notify(true)
		}
		synctest.Wait()
		b.expectMark(1, 0)
		s.change()
		b.flusher.Notify(true)
		synctest.Wait()
		b.expectMark(1, 3) // the open batch waits for the tick
		time.Sleep(time.Second)
		synctest.Wait()
		b.expectMark(1, 4)
	})
}

func TestWhatWaitsIsWrittenInOrderTogetherUpToTheCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := writebehind.DefaultConfig()
		cfg.Capacity = 2
		b := start(t, cfg, 2)
		for range 3 {
			b.sources[0].change()
			b.sources[0].Seal()
		}
		b.sources[1].change()
		b.sources[1].Seal()
		b.flusher.Notify(true)
		time.Sleep(time.Second)
		synctest.Wait()
		var got []string
		for _, w := range b.store.writes {
			line := ""
			for _, batch := range w {
				line += fmt.Sprintf("%d:%d ", batch.Group, batch.Mark.Index)
			}
			got = append(got, line)
		}
		if want := []string{"1:1 2:2 ", "2:3 "}; !slices.Equal(got, want) {
			t.Errorf("transactions %q, want %q", got, want)
		}
	})
}

func TestProposersWaitWhileTheBufferIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, writebehind.Config{Interval: time.Hour, BatchSize: 100, Capacity: 3, CapacityBytes: 1 << 20}, 1)
		b.store.delay = 10 * time.Second
		for range 3 {
			b.sources[0].change()
		}
		if !b.flusher.Full() {
			t.Fatal("the buffer is not full at its capacity")
		}
		begin := time.Now()
		b.flusher.Notify(false)
		if err := b.flusher.WaitBelowCapacity(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begin); waited != 10*time.Second {
			t.Errorf("waited %s, want the time of the write", waited)
		}
		for range 3 {
			b.sources[0].change()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.flusher.WaitBelowCapacity(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait with a deadline: %v", err)
		}
	})
}

func TestFlushThroughReturnsWhenTheIndexIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, writebehind.Config{Interval: time.Hour, BatchSize: 1, Capacity: 100, CapacityBytes: 1 << 20}, 2)
		s := b.sources[1]
		for range 5 {
			s.change()
			s.Seal()
		}
		s.change()
		if err := b.flusher.FlushThrough(t.Context(), s.group, 6); err != nil {
			t.Fatal(err)
		}
		b.expectMark(s.group, 6)
		if err := b.flusher.FlushThrough(t.Context(), s.group, 7); err == nil {
			t.Error("an index that is not applied was flushed")
		}
		if err := b.flusher.FlushThrough(t.Context(), 99, 1); err == nil {
			t.Error("an unknown group was flushed")
		}
	})
}

func TestAFailedWriteIsNotRepeatedAndFailsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, writebehind.Config{Interval: time.Second, BatchSize: 1, Capacity: 1, CapacityBytes: 1 << 20}, 1)
		b.store.err = errors.New("disk on fire")
		b.sources[0].change()
		waiting := make(chan error)
		go func() { waiting <- b.flusher.WaitBelowCapacity(context.Background()) }()
		<-b.flusher.Failed()
		for name, err := range map[string]error{
			"Err":               b.flusher.Err(),
			"FlushThrough":      b.flusher.FlushThrough(t.Context(), 1, 1),
			"WaitBelowCapacity": <-waiting,
			"Close":             b.flusher.Close(t.Context()),
		} {
			if !errors.Is(err, b.store.err) {
				t.Errorf("%s = %v, want the store's failure", name, err)
			}
		}
		time.Sleep(time.Hour)
		if n := b.store.count(); n != 1 {
			t.Errorf("%d attempts to write, want 1", n)
		}
	})
}

func TestCloseWritesTheRestAndRefusesAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, writebehind.DefaultConfig(), 1)
		s := b.sources[0]
		s.change()
		s.Seal()
		s.change()
		if err := b.flusher.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.expectMark(1, 2)
		s.change()
		if err := b.flusher.FlushThrough(t.Context(), 1, 3); !errors.Is(err, writebehind.ErrClosed) {
			t.Errorf("flush after Close: %v", err)
		}
		if err := b.flusher.Register(&fakeSource{group: 50}); !errors.Is(err, writebehind.ErrClosed) {
			t.Errorf("Register after Close: %v", err)
		}
		if err := b.flusher.Close(t.Context()); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

func TestAnUnregisteredSourceIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, writebehind.DefaultConfig(), 1)
		s := b.sources[0]
		if err := b.flusher.Register(&fakeSource{group: s.group}); !errors.Is(err, writebehind.ErrRegistered) {
			t.Errorf("second source of a group: %v", err)
		}
		b.store.delay = time.Minute
		s.change()
		time.Sleep(time.Second)
		synctest.Wait()
		b.flusher.Unregister(s) // waits for the write under way
		b.expectMark(s.group, 1)
		s.change()
		time.Sleep(time.Hour)
		synctest.Wait()
		b.expectMark(s.group, 1)
		if n := b.flusher.Pending(); n != 0 {
			t.Errorf("%d items of unregistered sources are pending", n)
		}
	})
}

func TestExclusiveKeepsFlushesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, writebehind.DefaultConfig(), 1)
		err := b.flusher.Exclusive(func() error {
			b.sources[0].change()
			time.Sleep(time.Minute)
			synctest.Wait()
			b.expectMark(1, 0)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.expectMark(1, 1)
	})
}

func TestProposersGoOnWhenDirtyItemsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, writebehind.Config{Interval: time.Hour, BatchSize: 100, Capacity: 2, CapacityBytes: 1 << 20}, 2)
		wait := func() chan error {
			b.sources[0].change()
			b.sources[1].change()
			waited := make(chan error, 1)
			go func() { waited <- b.flusher.WaitBelowCapacity(t.Context()) }()
			synctest.Wait()
			return waited
		}
		begin := time.Now()
		waited := wait()
		if err := b.flusher.Exclusive(func() error { b.sources[0].drop(); return nil }); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; err != nil {
			t.Error(err)
		}
		waited = wait()
		b.flusher.Unregister(b.sources[1])
		if err := <-waited; err != nil {
			t.Error(err)
		}
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("waited %s, until something was flushed", waited)
		}
	})
}

func TestConfigReportsEveryBadSetting(t *testing.T) {
	err := writebehind.Config{Interval: -1}.Validate()
	for _, want := range []string{"interval", "batch size", "capacity"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name the %s", err, want)
		}
	}
	if _, err := writebehind.New(writebehind.Config{}, writebehind.Deps{Logger: hclog.NewNullLogger()}); err == nil {
		t.Error("New takes a bad configuration")
	}
}
