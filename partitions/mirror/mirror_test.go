package mirror

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage/postgres"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inWorld runs do in virtual time, with a mirror that runs.
func inWorld(t *testing.T, cfg Config, do func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		defer w.stop()
		w.start()
		do(t, w)
	})
}

// What is claimed to be in the table is there, whatever changes, fails and takes time
// meanwhile, and no row goes back.
func TestWhatIsClaimedIsInTheTable(t *testing.T) {
	for seed := range uint64(10) {
		inWorld(t, testConfig(), func(t *testing.T, w *world) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			faults := rand.New(rand.NewPCG(seed, 2)) // under the table's lock
			w.table.set(func() {
				w.table.delay = func() time.Duration { return time.Duration(faults.IntN(300)) * time.Millisecond }
				w.table.fail = func(*postgres.Batch) error { return []error{nil, nil, nil, nil, errConflict, errAway}[faults.IntN(6)] }
				w.table.after = func(*postgres.Batch) error { return []error{nil, nil, nil, errAway}[faults.IntN(4)] }
			})
			latest, at := map[string]byte{}, map[string]uint64{}
			var last uint64
			for i := range 60 {
				key := keyed(rnd.IntN(12))
				last = w.put(key, byte(i+1))
				latest[key], at[key] = byte(i+1), last
				time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				p, err := w.mirror.Progress(ctx, 1, 0)
				cancel()
				if err != nil {
					continue
				}
				for key, value := range w.table.values() {
					if at[key] <= p.Index && value != latest[key] {
						t.Errorf("seed %d: %s of entry %d is %d at progress %d, want %d", seed, key, at[key], value, p.Index, latest[key])
					}
				}
				for key, index := range at {
					if _, found := w.table.values()[key]; index <= p.Index && !found {
						t.Errorf("seed %d: %s of entry %d is missing at progress %d", seed, key, index, p.Index)
					}
				}
			}
			w.progress(last)
			w.holds(latest)
		})
	}
}

func TestTransactionsAreBoundedAndAHotKeyIsWrittenOnce(t *testing.T) {
	cfg := testConfig()
	cfg.BatchBytes = 3 << 10
	inWorld(t, cfg, func(t *testing.T, w *world) {
		w.progress(1)
		w.table.set(func() { w.table.hold = make(chan struct{}) })
		w.put("first", 1)
		time.Sleep(2 * cfg.Interval) // its transaction waits
		var last uint64
		for i := range 100 {
			w.put("hot", byte(i))
		}
		for i := range 11 {
			w.put(keyed(i), 1)
		}
		large := protocol.Record{Value: make([]byte, 2<<10)}
		for _, key := range []string{"large1", "large2", "large3", "large4"} {
			last = w.apply(1, command.EncodePut(command.Put{Map: "m", Key: key, Stamped: true, Record: large}))
		}
		w.table.set(func() {
			close(w.table.hold)
			w.table.hold = nil
		})
		w.progress(last)
		if n := w.table.offered("hot"); n != 1 {
			t.Errorf("a key that changed 100 times was written %d times", n)
		}
		for _, b := range w.table.writes {
			bytes := 0
			for _, r := range b.Rows {
				bytes += len(r.Record.Value)
			}
			// A transaction ends with the row that fills it.
			if len(b.Rows) > cfg.BatchSize || bytes > cfg.BatchBytes+2<<10 {
				t.Errorf("a transaction of %d rows, %d bytes", len(b.Rows), bytes)
			}
		}
	})
}

func TestAChangeIsWrittenWithinTheIntervalAndAtOnceOnRequest(t *testing.T) {
	cfg := testConfig()
	inWorld(t, cfg, func(t *testing.T, w *world) {
		w.progress(1)
		w.put("a", 1)
		time.Sleep(cfg.Interval + cfg.Poll)
		w.holds(map[string]byte{"a": 1})
		start := time.Now()
		w.progress(w.put("a", 2))
		if d := time.Since(start); d > cfg.Poll {
			t.Errorf("who waits for it waits %s", d)
		}
		start = time.Now()
		for i := range cfg.BatchSize {
			w.put(keyed(i), 1)
		}
		synctest.Wait()
		if n := w.table.offered(keyed(0)); n != 1 || time.Since(start) > 0 {
			t.Errorf("a full batch was offered %d times", n)
		}
	})
}

func TestANewLeaderWritesWhatItsPredecessorLeft(t *testing.T) {
	cfg := testConfig()
	inWorld(t, cfg, func(t *testing.T, w *world) {
		w.progress(w.put("a", 1))
		w.lead(2, false)
		time.Sleep(2 * cfg.Poll)
		want := map[string]byte{"a": 1}
		for i := range 50 {
			w.put(keyed(i), byte(i+1))
			want[keyed(i)] = byte(i + 1)
		}
		if n := w.mirror.Pending(); n != 0 {
			t.Errorf("%d keys wait on a node that does not lead", n)
		}
		w.lead(3, true)
		w.progress(51)
		w.holds(want)
		if n := w.table.offered("a"); n > 2 {
			t.Errorf("what was in the table was written %d times", n)
		}
	})
}

func TestADeposedLeaderStops(t *testing.T) {
	cfg := testConfig()
	inWorld(t, cfg, func(t *testing.T, w *world) {
		w.progress(w.put("a", 1))
		// Another node writes in a later term, which this one does not know of yet.
		w.table.set(func() { w.table.found.Term = 9 })
		w.put("a", 2)
		time.Sleep(cfg.Interval + cfg.Poll)
		w.holds(map[string]byte{"a": 1})
		if _, err := w.mirror.Progress(t.Context(), 1, 1); !notLeader(err) {
			t.Errorf("progress of a deposed leader: %v", err)
		}
		w.lead(2, false)
		w.put("b", 1)
		time.Sleep(cfg.RetryLast)
		offered := len(w.table.writes)
		time.Sleep(time.Hour)
		if len(w.table.writes) != offered || w.mirror.Pending() != 0 {
			t.Errorf("%d writes of who does not lead, %d keys noted", len(w.table.writes)-offered, w.mirror.Pending())
		}
		if !w.mirror.metrics.available() {
			t.Error("the failures of a leadership outlive it")
		}
		w.lead(10, true)
		w.progress(3)
		w.holds(map[string]byte{"a": 2, "b": 1})
	})
}

func notLeader(err error) bool {
	var not *raftnode.NotLeaderError
	return errors.As(err, &not)
}

func TestTheTableIsClaimedAndAdoptedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testConfig())
		defer w.stop()
		w.state = &system.State{Genesis: w.state.Genesis}
		w.apply(0, command.EncodeGenesis(*w.state.Genesis))
		w.open(1)
		for i := range 500 {
			w.table.before = append(w.table.before, postgres.Row{
				Map: "m", Key: fmt.Sprint("old", i), Record: &protocol.Record{Value: []byte{7}, Timestamp: protocol.Timestamp{Millis: 1, NodeID: "x"}},
			})
		}
		attempts := 0
		w.offer = func() error {
			if attempts++; attempts%3 == 0 {
				return raftnode.ErrBusy
			}
			return nil
		}
		if w.mirror.Ready() {
			t.Error("ready before the table is claimed")
		}
		w.start()
		w.progress(1)
		if d := w.cluster().Database; d == nil || d.Token != 70 || !w.mirror.Ready() {
			t.Errorf("database %+v", d)
		}
		if _, found, err := w.machines[1].Get("m", "old499"); err != nil || !found {
			t.Errorf("a row of the table is not in the state: %v", err)
		}
		if fence := w.machines[1].Fence(); fence != 70 {
			t.Errorf("fence %d", fence)
		}
		if token := w.table.position().Token; token < 70+tokenReserve {
			t.Errorf("noted token %d", token)
		}
	})
}
