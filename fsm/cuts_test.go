package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/protocol"
)

// recordingStore keeps the size and the mark of every batch.
type recordingStore struct {
	storage.Store
	batches []storage.Batch
}

func (s *recordingStore) Write(batches []storage.Batch) error {
	s.batches = append(s.batches, batches...)
	return s.Store.Write(batches)
}

// records are the items of a batch that are records; what lists their keys is left out.
func records(b storage.Batch) []storage.Item {
	return slices.DeleteFunc(slices.Clone(b.Items), func(it storage.Item) bool { return it.Key.Section != storage.SectionRecords })
}

// puts makes an entry of n writes to keys of its own.
func puts(index uint64, n int) fsm.Entry {
	var cmds []command.Raw
	for i := range n {
		cmds = append(cmds, put("m", fmt.Sprintf("%d-%d", index, i), "v", ts(int64(index), int64(i))))
	}
	return entry(index, ts(int64(index), 0), cmds...)
}

func TestBatchesEndBetweenEntriesBeforeTheyGrowTooLarge(t *testing.T) {
	store := &recordingStore{Store: memory.New(memory.Config{})}
	// A capacity of one keeps batches from being merged.
	r := openRig(t, 1, store, batchSize(10), capacity(1))
	r.apply(puts(1, 4), puts(2, 4), puts(3, 4), puts(4, 25), puts(6, 1), puts(7, 9), puts(8, 1))
	r.flush()
	var got []string
	for _, b := range store.batches {
		got = append(got, fmt.Sprintf("%d items through %d", len(records(b)), b.Mark.Index))
	}
	want := []string{"8 items through 2", "4 items through 3", "25 items through 4", "10 items through 7", "1 items through 8"}
	if !slices.Equal(got, want) {
		t.Errorf("batches %q, want %q", got, want)
	}
}

func TestBatchesThatWaitTogetherHaveEachItemOnceWithItsLatestValue(t *testing.T) {
	store := &recordingStore{Store: memory.New(memory.Config{})}
	r := openRig(t, 1, store, batchSize(2))
	for i := range uint64(30) {
		r.apply(entry(i+1, ts(1, 0), put("m", fmt.Sprint(i%5), fmt.Sprint(i), ts(int64(i), 0))))
	}
	r.flush()
	if len(store.batches) != 1 || len(records(store.batches[0])) != 5 || store.batches[0].Mark.Index != 30 {
		t.Fatalf("batches %+v, want one of five items at 30", store.batches)
	}
	for _, it := range records(store.batches[0]) {
		key := it.Key.Bytes[len(it.Key.Bytes)-1:]
		latest := map[string]string{"0": "25", "1": "26", "2": "27", "3": "28", "4": "29"}[key]
		if !bytes.HasSuffix(it.Value, record(latest, ts(0, 0)).Value) {
			t.Errorf("item %s has value %q, want %s", key, it.Value, latest)
		}
	}
	rec, ok, err := r.machine.Get("m", "4")
	if err != nil || !ok || !bytes.Equal(rec.Value, record("29", ts(29, 0)).Value) {
		t.Errorf("the last value of key 4 is %q, %v, %v", rec.Value, ok, err)
	}
	if n := r.machine.Pending(); n != 0 {
		t.Errorf("%d items pending after the flush", n)
	}
}

func TestABatchHasEachItemOnceWithItsLatestValue(t *testing.T) {
	store := &recordingStore{Store: memory.New(memory.Config{})}
	r := openRig(t, 1, store, batchSize(10))
	for i := range uint64(30) {
		r.apply(entry(i+1, ts(1, 0), put("m", "k", fmt.Sprint(i), ts(int64(i), 0))))
	}
	if n := r.machine.Pending(); n != 2 {
		t.Errorf("%d items pending, want the record and its place in the tree", n)
	}
	r.flush()
	// The record, its key, and of the tree the bucket and the word that all buckets are there.
	if len(store.batches) != 1 || len(store.batches[0].Items) != 4 {
		t.Fatalf("batches %+v, want one of four items", store.batches)
	}
	if n := r.machine.Pending(); n != 0 {
		t.Errorf("%d items pending after the flush", n)
	}
}

func TestACheckpointRaisesTheMarkToEntriesThatNoMachineSees(t *testing.T) {
	r := newRig(t, 1)
	r.apply(entry(1, ts(1, 0), put("m", "k", "v", ts(1, 0))))
	at := fsm.Position{Index: 9, Term: 3, Configuration: []byte("conf"), ConfigurationIndex: 8}
	r.must(r.machine.Checkpoint(t.Context(), at))
	mark := r.machine.Flushed()
	if mark.Index != 9 || mark.Term != 3 || string(mark.Configuration) != "conf" || mark.ConfigurationIndex != 8 {
		t.Errorf("mark %+v, want that of the position", mark)
	}
	// A position behind the state only flushes.
	r.apply(fsm.Entry{Index: 10, Term: 3, Data: []byte("newer"), Configuration: true}, entry(11, ts(2, 0)))
	r.must(r.machine.Checkpoint(t.Context(), at))
	r.flush()
	again := r.crash()
	mark = again.machine.Flushed()
	if mark.Index != 11 || string(mark.Configuration) != "newer" || mark.ConfigurationIndex != 10 {
		t.Errorf("mark %+v after restart, want entry 11 with the configuration of 10", mark)
	}
}

func TestTheDedupWindowForgetsTheOldestFirst(t *testing.T) {
	r := newRig(t, 1)
	write := func(op int) command.Raw {
		return command.EncodePut(command.Put{
			Map: "m", Key: "k", Record: record("v", protocol.Timestamp{}), Stamped: true, Overwrite: true, Dedup: fmt.Sprint(op),
		})
	}
	index := uint64(0)
	do := func(op int) command.Result {
		index++
		return r.apply(entry(index, ts(int64(index), 0), write(op)))[0][0]
	}
	for op := range fsm.WindowSize {
		do(op)
	}
	if res := do(0); res.Changed || res.Index != 1 {
		t.Errorf("the oldest of a full window answers %+v, want index 1 unchanged", res)
	}
	do(fsm.WindowSize) // pushes operation 0 out
	r.flush()
	snapshot := r.snapshot()
	for name, again := range map[string]*rig{"restart": r.crash(), "snapshot": restored(t, 1, snapshot)} {
		r = again
		if res := do(1); res.Changed || res.Index != 2 {
			t.Errorf("%s: the oldest that is left answers %+v, want index 2 unchanged", name, res)
		}
		if res := do(0); !res.Changed {
			t.Errorf("%s: a forgotten operation answers %+v, want it applied again", name, res)
		}
		if res := do(1); !res.Changed {
			t.Errorf("%s: operation 1 answers %+v after it was pushed out", name, res)
		}
		index -= 3
	}
}

// damagedStore has one item that cannot be read.
type damagedStore struct{ storage.Store }

type damagedReader struct{ storage.Reader }

func (s damagedStore) NewReader() (storage.Reader, error) {
	r, err := s.Store.NewReader()
	return damagedReader{r}, err
}

func (r damagedReader) Get(group uint32, key storage.Key) ([]byte, error) {
	if key.Section == storage.SectionRecords {
		return nil, fmt.Errorf("checksum: %w", storage.ErrCorrupt)
	}
	return r.Reader.Get(group, key)
}

func TestADamagedRecordStopsTheMachineAndIsNeverAbsent(t *testing.T) {
	r := openRig(t, 1, damagedStore{memory.New(memory.Config{})}, cacheBytes(0))
	if _, found, err := r.machine.Get("m", "k"); found || !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("Get of a damaged record: %v, %v; want ErrCorrupt", found, err)
	}
	_, err := r.machine.Apply([]fsm.Entry{entry(1, ts(1, 0), put("m", "k", "v", ts(1, 0)))})
	if !errors.Is(err, fsm.ErrStopped) || !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("Apply over a damaged record: %v, want ErrStopped and ErrCorrupt", err)
	}
	if index, _ := r.machine.Applied(); index != 0 {
		t.Errorf("applied %d, want 0", index)
	}
}

func TestAFailedStoreFailsTheCheckpoint(t *testing.T) {
	r := openRig(t, 1, &cutStore{Store: memory.New(memory.Config{})})
	r.apply(puts(1, 1))
	if err := r.machine.Checkpoint(t.Context(), fsm.Position{Index: 1, Term: 1}); !errors.Is(err, errCut) {
		t.Errorf("checkpoint: %v, want the store's failure", err)
	}
	if mark := r.machine.Flushed(); mark.Index != 0 {
		t.Errorf("flushed %d after a failed write", mark.Index)
	}
	if n := r.machine.Pending(); n != 2 {
		t.Errorf("%d items pending, want the record and its place in the tree", n)
	}
}

func TestAClosedMachineRefuses(t *testing.T) {
	r := newRig(t, 1)
	r.apply(puts(1, 1))
	r.must(r.machine.Close())
	r.must(r.machine.Close())
	_, applyErr := r.machine.Apply([]fsm.Entry{puts(2, 1)})
	_, _, getErr := r.machine.Get("m", "1-0")
	_, scanErr := r.machine.Scan("m", "", func(string, protocol.Record) bool { return true })
	_, openErr := r.machine.OpenSnapshot()
	for call, err := range map[string]error{
		"Apply": applyErr, "Get": getErr, "Scan": scanErr, "OpenSnapshot": openErr,
		"Restore":    r.machine.Restore(bytes.NewReader(nil)),
		"Checkpoint": r.machine.Checkpoint(t.Context(), fsm.Position{Index: 1}),
	} {
		if !errors.Is(err, fsm.ErrClosed) {
			t.Errorf("%s: error %v, want ErrClosed", call, err)
		}
	}
	// Nothing was flushed, so the log is replayed from the beginning.
	again := openRig(t, 1, r.store)
	if index, _ := again.machine.Applied(); index != 0 {
		t.Errorf("applied %d after a close without a flush", index)
	}
}
