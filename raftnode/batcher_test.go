package raftnode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
)

// countingClock issues consecutive stamps.
type countingClock struct {
	mu   sync.Mutex
	next int64
}

func (c *countingClock) Reserve(n int) protocol.Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.next
	c.next += int64(n)
	return protocol.Timestamp{Millis: 1, Counter: first, NodeID: "n"}
}

func (c *countingClock) Advance(_, counter int64) { c.next = counter + 1 }

// batchRig is a batcher over a log that commits when it is told to.
type batchRig struct {
	*batcher
	entries chan command.Entry
	commit  chan error
}

func newBatchRig(t *testing.T, change func(*Config)) *batchRig {
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	r := &batchRig{entries: make(chan command.Entry, 1000), commit: make(chan error)}
	var index uint64
	r.batcher = &batcher{config: cfg, clock: &countingClock{}, observe: func(int) {}, append: func(build func() []byte) func() ([]command.Result, error) {
		entry, err := command.DecodeEntry(build())
		if err != nil {
			t.Error(err)
		}
		r.entries <- entry
		index++
		results := make([]command.Result, len(entry.Commands))
		for i := range results {
			results[i] = command.Result{Index: index, Reason: string(entry.Commands[i].Body)}
		}
		return func() ([]command.Result, error) {
			if err := <-r.commit; err != nil {
				return nil, err
			}
			return results, nil
		}
	}}
	r.start()
	return r
}

func (r *batchRig) close() {
	r.refuse()
	close(r.commit)
	r.wait()
}

func commands(names ...string) []Command {
	var list []Command
	for _, name := range names {
		list = append(list, Command{Kind: 1, Version: 1, Body: []byte(name)})
	}
	return list
}

func TestProposalsGatherWhileEntriesAreInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t, nil)
		var all []*proposal
		for i := range 100 {
			p, err := r.propose(commands(fmt.Sprintf("%d-a", i), fmt.Sprintf("%d-b", i)))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
			synctest.Wait()
		}
		// The first two travel alone; everything else waits for one of them.
		if got := len(r.entries); got != 2 {
			t.Fatalf("%d entries in flight", got)
		}
		r.commit <- nil
		synctest.Wait()
		if first, second, third := <-r.entries, <-r.entries, <-r.entries; len(first.Commands) != 2 ||
			len(second.Commands) != 2 || len(third.Commands) != 196 ||
			third.Stamp.Counter <= second.Stamp.Counter+1 {
			t.Errorf("%d, %d, %d commands, stamps %s, %s", len(first.Commands), len(second.Commands), len(third.Commands), second.Stamp, third.Stamp)
		}
		r.commit <- nil
		r.commit <- nil
		last := uint64(0)
		for i, p := range all {
			results, err := p.Wait(t.Context())
			if err != nil || len(results) != 2 || results[0].Reason != fmt.Sprintf("%d-a", i) || results[1].Reason != fmt.Sprintf("%d-b", i) {
				t.Fatalf("proposal %d: %v, %v", i, results, err)
			}
			if results[0].Index < last || results[0].Index != results[1].Index {
				t.Fatalf("proposal %d is at index %d after %d", i, results[0].Index, last)
			}
			last = results[0].Index
		}
		synctest.Wait()
		if !r.idle() {
			t.Error("not idle after all were answered")
		}
		r.close()
	})
}

func TestEntriesKeepTheirLimits(t *testing.T) {
	for _, tc := range []struct {
		name      string
		proposals []int // commands of each
		size      int   // of a command's body
		entries   []int // commands of each entry after the first two
	}{
		{"by commands", []int{4, 4, 4, 4}, 1, []int{8, 8}},
		{"a proposal is not split", []int{6, 6, 3}, 1, []int{6, 9}},
		{"a large one travels alone", []int{3, 25, 3}, 1, []int{3, 25, 3}},
		{"by bytes", []int{1, 1, 1, 1, 1}, 400, []int{2, 2, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBatchRig(t, func(c *Config) { c.MaxEntryOps, c.MaxEntryBytes = 10, 1000 })
				for _, name := range []string{"blocks", "blocks too"} {
					if _, err := r.propose(commands(name)); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					<-r.entries
				}
				for _, n := range tc.proposals {
					cmds := make([]Command, n)
					for i := range cmds {
						cmds[i] = Command{Kind: 1, Body: make([]byte, tc.size)}
					}
					if _, err := r.propose(cmds); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 + len(tc.entries) {
					r.commit <- nil
				}
				synctest.Wait()
				for i, want := range tc.entries {
					if got := len((<-r.entries).Commands); got != want {
						t.Errorf("entry %d has %d commands, want %d", i, got, want)
					}
				}
				r.close()
			})
		})
	}
}

func TestFullQueueRefusesAndKeepsWhatItHas(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"commands": func(c *Config) { c.QueueOps = 8 },
		"bytes":    func(c *Config) { c.QueueBytes = 8 * (100 + commandOverhead) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBatchRig(t, change)
				body := make([]byte, 100)
				accepted, refused := 0, 0
				for range 20 {
					_, err := r.propose([]Command{{Kind: 1, Body: body}})
					synctest.Wait()
					switch {
					case err == nil:
						accepted++
					case errors.Is(err, ErrBusy):
						refused++
					default:
						t.Fatal(err)
					}
				}
				if accepted != 8+r.config.InFlight || refused == 0 {
					t.Errorf("%d accepted, %d refused", accepted, refused)
				}
				r.close()
			})
		})
	}
}

func TestErrorsReachEveryProposalOfTheEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t, nil)
		a, _ := r.propose(commands("a"))
		synctest.Wait()
		b, _ := r.propose(commands("b", "c"))
		synctest.Wait()
		r.commit <- ErrUnknown
		r.commit <- ErrUnknown
		for _, p := range []*proposal{a, b} {
			if results, err := p.Wait(t.Context()); !errors.Is(err, ErrUnknown) || results != nil {
				t.Errorf("%v, %v", results, err)
			}
		}
		r.close()
	})
}

func TestClosingBatcherNamesWhatWasNeverAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t, nil)
		var all []*proposal
		for range 5 {
			p, err := r.propose(commands("x"))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
			synctest.Wait()
		}
		r.refuse()
		if _, err := r.propose(commands("late")); !errors.Is(err, ErrBusy) {
			t.Errorf("after the end: %v", err)
		}
		for range 2 {
			r.commit <- ErrUnknown
		}
		r.wait()
		for i, p := range all {
			want := ErrBusy
			if i < 2 {
				want = ErrUnknown
			}
			if _, err := p.Wait(t.Context()); !errors.Is(err, want) {
				t.Errorf("proposal %d: %v", i, err)
			}
		}
		r.refuse()
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	p := newProposal(commands("a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Wait(ctx); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func BenchmarkBatcher(b *testing.B) {
	results := make([]command.Result, 10)
	bat := &batcher{
		config: DefaultConfig(), clock: &countingClock{}, observe: func(int) {},
		append: func(build func() []byte) func() ([]command.Result, error) {
			build()
			return func() ([]command.Result, error) { return results, nil }
		},
	}
	bat.start()
	cmds := make([]Command, len(results))
	for i := range cmds {
		cmds[i] = Command{Kind: 1, Version: 1, Body: make([]byte, 120)}
	}
	b.ReportAllocs()
	for b.Loop() {
		p, err := bat.propose(cmds)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	bat.refuse()
	bat.wait()
}
