package mirror

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/fsm/storage/postgres"
)

// The pauses between attempts grow to their bound when the database is away, and there is
// none after a conflict.
func TestFailuresAreRetriedByClass(t *testing.T) {
	cfg := testConfig()
	for name, tc := range map[string]struct {
		err    error
		pauses bool
	}{"conflict": {errConflict, false}, "away": {errAway, true}, "timeout": {context.DeadlineExceeded, true}, "foreign": {postgres.ErrForeign, true}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, cfg, func(t *testing.T, w *world) {
				w.progress(1)
				failures := 12
				w.table.set(func() {
					w.table.writes, w.table.at = nil, nil
					w.table.fail = func(*postgres.Batch) error {
						if failures--; failures >= 0 {
							return tc.err
						}
						return nil
					}
				})
				w.progress(w.put("a", 1))
				w.holds(map[string]byte{"a": 1})
				var pauses []time.Duration
				for i := 1; i <= 12; i++ {
					pauses = append(pauses, w.table.at[i].Sub(w.table.at[i-1]))
				}
				if tc.pauses && (pauses[0] != cfg.RetryFirst || !slices.IsSorted(pauses) || pauses[11] != cfg.RetryLast) {
					t.Errorf("pauses %v", pauses)
				}
				if !tc.pauses && slices.Max(pauses) > 0 {
					t.Errorf("pauses %v after a conflict", pauses)
				}
				if !w.mirror.metrics.available() {
					t.Error("a database that answers is not available")
				}
			})
		})
	}
}

func TestAnOutageIsSeenAndEnds(t *testing.T) {
	inWorld(t, testConfig(), func(t *testing.T, w *world) {
		w.progress(1)
		w.table.set(func() { w.table.fail = func(*postgres.Batch) error { return errAway } })
		index := w.put("a", 1)
		time.Sleep(time.Minute)
		if w.mirror.metrics.available() || w.mirror.Pending() != 1 {
			t.Errorf("available %v, %d keys wait", w.mirror.metrics.available(), w.mirror.Pending())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if p, err := w.mirror.Progress(ctx, 1, index); err != nil || p.Index >= index {
			t.Errorf("progress without a database: %+v, %v", p, err)
		}
		start := time.Now()
		w.mirror.Drain(t.Context())
		if d := time.Since(start); d > 0 {
			t.Errorf("the drain waits %s for a database that does not answer", d)
		}
		w.table.set(func() { w.table.fail = nil })
		w.progress(index)
	})
}

// A database of somebody else is left alone, and the operator is told how to adopt it.
func TestADatabaseOfAnotherClusterIsLeftAlone(t *testing.T) {
	inWorld(t, testConfig(), func(t *testing.T, w *world) {
		w.progress(w.put("a", 1))
		own := w.table.owner
		w.table.set(func() { w.table.owner, w.table.broken = postgres.Owner{Cluster: "other"}, true })
		index := w.put("a", 2)
		time.Sleep(time.Minute)
		w.holds(map[string]byte{"a": 1})
		g := w.mirror.group(1)
		if err := g.explain(postgres.ErrForeign); !strings.Contains(err.Error(), "ADOPT") {
			t.Errorf("the operator is told %v", err)
		}
		if w.table.open != 0 {
			t.Errorf("%d sessions on it", w.table.open)
		}
		w.table.set(func() { w.table.owner = own })
		w.progress(index)
		w.holds(map[string]byte{"a": 2})
	})
}

// What the database lost is written again before anything is claimed, though that fails
// at first.
func TestADatabaseThatLostTransactionsGetsThemAgain(t *testing.T) {
	for _, failures := range []int{0, 1, 5} {
		inWorld(t, testConfig(), func(t *testing.T, w *world) {
			want := map[string]byte{}
			for i := range 30 {
				want[keyed(i)] = byte(i + 1)
				w.progress(w.put(keyed(i), byte(i+1)))
			}
			w.table.set(func() {
				clear(w.table.rows)
				w.table.found.Sequence, w.table.found.Index = 1, 0
				told := false
				w.table.fail = func(b *postgres.Batch) error {
					if !told {
						told = true
						return nil // the database says what it lost
					}
					if failures--; failures >= 0 {
						return errAway
					}
					return nil
				}
			})
			want["next"] = 1
			w.progress(w.put("next", 1))
			w.holds(want)
		})
	}
}

// A group that nobody writes to notices it when the node's session is another one.
func TestAnIdleGroupNoticesADatabaseThatLostTransactions(t *testing.T) {
	inWorld(t, testConfig(), func(t *testing.T, w *world) {
		w.progress(w.put("a", 1))
		w.table.set(func() {
			clear(w.table.rows)
			w.table.found.Sequence, w.table.found.Index, w.table.broken = 1, 0, true
		})
		time.Sleep(time.Minute)
		w.holds(map[string]byte{"a": 1})
	})
}

// refuse has the table refuse rows of some keys for good.
func (f *fakeTable) refuse(bad ...string) {
	f.set(func() {
		f.fail = func(b *postgres.Batch) error {
			for _, row := range b.Rows {
				if slices.Contains(bad, row.Key) {
					return &postgres.RejectedError{Map: row.Map, Key: row.Key, Err: errors.New("constraint")}
				}
			}
			return nil
		}
	})
}

func TestARefusedRowStallsNoOther(t *testing.T) {
	cfg := testConfig()
	inWorld(t, cfg, func(t *testing.T, w *world) {
		w.progress(1)
		w.table.refuse("k03")
		want := map[string]byte{}
		first := uint64(0)
		for i := range 10 {
			index := w.put(keyed(i), 1)
			if i == 3 {
				first = index
			} else {
				want[keyed(i)] = 1
			}
		}
		p := w.progress(11)
		w.holds(want)
		if len(p.Rejected) != 1 || p.Rejected[0].Key != "k03" {
			t.Errorf("rejected %v", p.Rejected)
		}
		for i := range 2 * noteEvery {
			p = w.progress(w.put("other", byte(i)))
		}
		if got := w.table.position().Index; got >= first {
			t.Errorf("the position %d hides the refused row of entry %d from the next leader", got, first)
		}
		offered := w.table.offered("k03")
		w.table.refuse()
		time.Sleep(cfg.RetryRejected + cfg.Interval)
		if w.table.offered("k03") != offered+1 || w.mirror.rejected() != 0 {
			t.Errorf("%d attempts, %d rejected", w.table.offered("k03")-offered, w.mirror.rejected())
		}
		if w.table.values()["k03"] != 1 {
			t.Error("the row is not written once it is taken")
		}
	})
}

// The next leader finds rows that were refused.
func TestARefusedRowOutlivesTheLeadership(t *testing.T) {
	cfg := testConfig()
	inWorld(t, cfg, func(t *testing.T, w *world) {
		w.table.refuse("bad")
		w.put("bad", 1)
		index := w.put("good", 1)
		if p := w.progress(index); len(p.Rejected) != 1 {
			t.Errorf("progress %+v", p)
		}
		w.lead(2, false)
		time.Sleep(2 * cfg.Poll)
		if n := w.mirror.rejected(); n != 0 {
			t.Errorf("%d rows are refused where nobody leads", n)
		}
		w.lead(3, true)
		if p := w.progress(index); len(p.Rejected) != 1 {
			t.Errorf("progress of the next leader %+v", p)
		}
		w.table.refuse()
		w.lead(4, true)
		time.Sleep(2 * cfg.Poll)
		w.progress(index)
		w.holds(map[string]byte{"bad": 1, "good": 1})
	})
}

// blocked reports whether a proposer has to wait.
func (w *world) blocked() bool {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
	defer cancel()
	return errors.Is(w.mirror.WaitBelowCapacity(ctx), context.DeadlineExceeded)
}

func TestProposersWaitAtTheCapacityAndAreLetOn(t *testing.T) {
	cfg := testConfig()
	inWorld(t, cfg, func(t *testing.T, w *world) {
		w.progress(1)
		hold := make(chan struct{})
		w.table.set(func() { w.table.hold = hold })
		for i := range cfg.Capacity - 1 {
			w.put(keyed(i), 1)
		}
		if w.blocked() {
			t.Error("proposers wait below the capacity")
		}
		last := w.put("last", 1)
		if !w.blocked() {
			t.Error("proposers do not wait at the capacity")
		}
		let := make(chan error)
		go func() { let <- w.mirror.WaitBelowCapacity(t.Context()) }()
		synctest.Wait()
		w.table.set(func() { w.table.hold = nil })
		close(hold)
		must(t, <-let)
		w.progress(last)
	})
}

// What is written right after an election counts, even while the database is away.
func TestProposersWaitUntilChangesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testConfig())
		defer w.stop()
		w.table.hold = make(chan struct{})
		defer close(w.table.hold)
		if !w.blocked() {
			t.Error("a write is let in that is not counted")
		}
		w.start()
		must(t, w.mirror.WaitBelowCapacity(t.Context()))
		w.put("first", 1)
		if n := w.mirror.Pending(); n != 1 {
			t.Errorf("%d changes wait", n)
		}
	})
}

// Rows that are refused do not gather without bound.
func TestProposersWaitForRefusedRows(t *testing.T) {
	cfg := testConfig()
	inWorld(t, cfg, func(t *testing.T, w *world) {
		var all []string
		for i := range cfg.Capacity {
			all = append(all, keyed(i))
		}
		w.table.refuse(all...)
		for _, key := range all {
			w.progress(w.put(key, 1))
		}
		if !w.blocked() {
			t.Error("proposers do not wait")
		}
		w.table.refuse()
		time.Sleep(cfg.RetryRejected + cfg.Interval)
		if w.blocked() {
			t.Error("proposers wait for rows that were taken")
		}
	})
}

func TestStoppingWhileTheDatabaseBlocks(t *testing.T) {
	cfg := testConfig()
	for name, block := range map[string]func(w *world){
		"from the beginning": func(w *world) { w.table.hold = make(chan struct{}) },
		"while it writes": func(w *world) {
			w.start()
			w.progress(1)
			w.table.set(func() { w.table.hold = make(chan struct{}) })
			w.put("a", 1)
			w.mirror.group(1).hurry()
		},
		"while it is retried": func(w *world) {
			w.table.fail = func(*postgres.Batch) error { return errAway }
		},
		"while it adopts": func(w *world) {
			w.open(1)
			w.offer = func() error {
				time.Sleep(time.Millisecond)
				return errAway
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, cfg)
				block(w)
				if w.end == nil {
					w.start()
				}
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
				waiting := make(chan error)
				go func() {
					_, err := w.mirror.Progress(t.Context(), 1, 1<<40)
					waiting <- err
				}()
				start := time.Now()
				w.stop()
				if d := time.Since(start); d > cfg.RetryLast {
					t.Errorf("stopped after %s", d)
				}
				if err := <-waiting; !notLeader(err) {
					t.Errorf("who waits for the table is told %v", err)
				}
				if w.table.open != 0 || w.mirror.Pending() != 0 {
					t.Errorf("%d sessions, %d keys are left", w.table.open, w.mirror.Pending())
				}
			})
		})
	}
}
