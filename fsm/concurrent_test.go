package fsm_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/protocol"
)

func fastFlusher(c *writebehind.Config, m *fsm.Config) {
	c.Interval, c.BatchSize, m.Budget = time.Millisecond, 3, fsm.NewBudget(2000)
}

// generation writes its number into all keys of a map, so that a torn view shows
// two numbers.
func generation(n uint64) fsm.Entry {
	var cmds []command.Raw
	for k := range 5 {
		cmds = append(cmds, put("m", fmt.Sprint(k), fmt.Sprint(n), ts(int64(n), 0)))
	}
	return entry(n, ts(int64(n), 0), cmds...)
}

// checkGeneration scans the map and reports a view that is no generation.
func checkGeneration(m *fsm.Machine) error {
	seen := map[string]int{}
	index, err := m.Scan("m", "", func(_ string, rec protocol.Record) bool {
		seen[string(rec.Value[1:])]++
		return true
	})
	if err != nil {
		return err
	}
	if index > 0 && seen[fmt.Sprint(index)] != 5 {
		return fmt.Errorf("the view at %d shows %v", index, seen)
	}
	_, _, err = m.Get("m", "3")
	return err
}

func TestReadersSeeWholeEntriesBesideFlushesAndRestores(t *testing.T) {
	r := openRig(t, 1, openBolt(t), fastFlusher)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	background := func(work func() error) {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := work(); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	background(func() error { return r.flusher.Run(ctx) })
	for range 2 {
		background(func() error { return checkGeneration(r.machine) })
	}
	background(func() error {
		index, term := r.machine.Applied()
		return r.machine.Checkpoint(ctx, fsm.Position{Index: index, Term: term})
	})
	const last = 120
	for n := uint64(1); n <= last; n++ {
		r.apply(generation(n))
		if n%40 == 0 {
			r.restoreOwnState(n)
		}
	}
	stop()
	wg.Wait()
	if err := checkGeneration(r.machine); err != nil {
		t.Error(err)
	}
	if index, _ := r.machine.Applied(); index != last {
		t.Errorf("applied %d, want %d", index, last)
	}
}

// restoreOwnState streams the state at index out and in again.
func (r *rig) restoreOwnState(index uint64) {
	r.t.Helper()
	r.must(r.machine.Checkpoint(r.t.Context(), fsm.Position{Index: index, Term: 1}))
	snapshot := r.snapshot()
	r.must(r.machine.Restore(bytes.NewReader(snapshot)))
}

// panickingStore panics on the third item that is read from it.
type panickingStore struct {
	storage.Store
	reads int
}

type panickingReader struct {
	storage.Reader
	store *panickingStore
}

func (s *panickingStore) NewReader() (storage.Reader, error) {
	r, err := s.Store.NewReader()
	return panickingReader{r, s}, err
}

func (r panickingReader) Get(group uint32, key storage.Key) ([]byte, error) {
	if r.store.reads++; r.store.reads == 3 {
		panic("broken invariant")
	}
	return r.Reader.Get(group, key)
}

func TestHalfAnEntryIsNotFlushedWhenApplyPanics(t *testing.T) {
	inner := memory.New(memory.Config{})
	r := openRig(t, 1, &panickingStore{Store: inner})
	r.apply(puts(1, 1))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = r.machine.Apply([]fsm.Entry{puts(2, 2)})
	}()
	r.must(r.flusher.Close(t.Context()))
	again := openRig(t, 1, inner)
	if _, found, err := again.machine.Get("m", "2-0"); found || err != nil {
		t.Errorf("half an entry was flushed (%v, %v)", found, err)
	}
}
