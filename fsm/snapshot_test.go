package fsm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/protocol/merkle"
)

// restored is a new machine with the state of a snapshot.
func restored(t testing.TB, group uint32, snapshot []byte) *rig {
	t.Helper()
	r := newRig(t, group)
	r.must(r.machine.Restore(bytes.NewReader(snapshot)))
	return r
}

func TestASnapshotCarriesTheWholeState(t *testing.T) {
	rnd := newRand(t)
	for _, group := range []uint32{0, 1} {
		want := reference(t, group, randomLog(t, rnd, group, 200))
		want.flush()
		snapshot := want.snapshot()
		r := restored(t, group, snapshot)
		if diff := cmp.Diff(want.dump(modelMaps...), r.dump(modelMaps...)); diff != "" {
			t.Fatalf("state (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want.machine.Flushed(), r.machine.Flushed()); diff != "" {
			t.Errorf("mark (-want +got):\n%s", diff)
		}
		if !bytes.Equal(snapshot, r.snapshot()) {
			t.Error("the snapshot of the restored state differs")
		}
		again := r.crash()
		if diff := cmp.Diff(want.dump(modelMaps...), again.dump(modelMaps...)); diff != "" {
			t.Errorf("state after a restart (-want +got):\n%s", diff)
		}
	}
}

func TestALargeSnapshotHasItsExactSize(t *testing.T) {
	r := newRig(t, 1)
	for i := range uint64(200) {
		rec := record("", ts(1, 0))
		rec.Value = append([]byte{0xda, 8, 0}, strings.Repeat("v", 2048)...)
		r.apply(entry(i+1, ts(1, 0), putRecord("m", fmt.Sprint(i), rec)))
	}
	r.flush()
	snapshot := r.snapshot() // compares the size
	if len(snapshot) < 400_000 {
		t.Errorf("snapshot of %d bytes", len(snapshot))
	}
	if diff := cmp.Diff(r.dump("m"), restored(t, 1, snapshot).dump("m")); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

func TestASnapshotStaysTheSameWhileEntriesAreApplied(t *testing.T) {
	r := newRig(t, 1)
	r.apply(puts(1, 5))
	r.flush()
	before := r.snapshot()
	s, err := r.machine.OpenSnapshot()
	r.must(err)
	r.apply(puts(2, 5), entry(3, ts(3, 0), put("m", "1-0", "new", ts(9, 0))))
	r.flush()
	var got bytes.Buffer
	_, err = got.ReadFrom(s)
	r.must(err)
	r.must(s.Close())
	r.must(s.Close())
	if !bytes.Equal(got.Bytes(), before) || s.Mark().Index != 1 {
		t.Error("an open snapshot shows later entries")
	}
}

func TestRestoreReplacesWhatWasThere(t *testing.T) {
	source := newRig(t, 1)
	source.apply(puts(20, 3))
	source.flush()
	r := newRig(t, 1, batchSize(2))
	r.apply(puts(1, 3), puts(2, 1))
	r.flush()
	r.apply(entry(3, ts(3, 0), put("m", "dirty", "v", ts(3, 0))))
	r.changes = nil
	r.must(r.machine.Restore(bytes.NewReader(source.snapshot())))
	if diff := cmp.Diff(source.dump("m"), r.dump("m")); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]*fsm.Changes{{Group: 1, Index: 20, Reset: true}}, r.changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if n := r.machine.Pending(); n != 0 {
		t.Errorf("%d items of the replaced state are pending", n)
	}
	r.apply(puts(21, 1))
	r.flush()
	again := r.crash()
	source.apply(puts(21, 1))
	if diff := cmp.Diff(source.dump("m"), again.dump("m")); diff != "" {
		t.Errorf("state after a restart (-want +got):\n%s", diff)
	}
}

func TestADamagedSnapshotIsRefusedAndTheStateStays(t *testing.T) {
	source := newRig(t, 1)
	source.apply(puts(1, 4), fsm.Entry{Index: 2, Term: 1, Data: []byte("conf"), Configuration: true})
	source.flush()
	good := source.snapshot()

	r := newRig(t, 1)
	r.apply(puts(7, 2))
	before := r.dump("m")
	refuse := func(what string, snapshot []byte) {
		t.Helper()
		if err := r.machine.Restore(bytes.NewReader(snapshot)); !errors.Is(err, fsm.ErrSnapshot) {
			t.Errorf("%s: error %v, want ErrSnapshot", what, err)
		}
	}
	for i := range good {
		refuse(fmt.Sprintf("cut at %d", i), good[:i])
		for _, bit := range []byte{1, 0x80} {
			bad := bytes.Clone(good)
			bad[i] ^= bit
			refuse(fmt.Sprintf("bit %#x of byte %d", bit, i), bad)
		}
	}
	refuse("data behind it", append(bytes.Clone(good), 0))
	refuse("twice", append(bytes.Clone(good), good...))
	other := newRig(t, 2)
	other.apply(puts(1, 4))
	other.flush()
	refuse("of another group", other.snapshot())
	// Each part is whole, but they are of two states.
	source.apply(entry(3, ts(3, 0), put("m", "1-0", "w", ts(9, 0))))
	source.flush()
	newer := source.snapshot()
	head := len("QUORSNP1") + 8 + int(binary.LittleEndian.Uint32(good[len("QUORSNP1"):]))
	refuse("the header of another state", append(bytes.Clone(newer[:head]), good[head:]...))
	refuse("a huge frame", append(bytes.Clone(good[:8]), 0xff, 0xff, 0xff, 0xff))

	if after := r.dump("m"); after != before {
		t.Errorf("state changed from\n%s to\n%s", before, after)
	}
	r.must(r.machine.Restore(bytes.NewReader(good)))
}

func TestASnapshotThatContradictsItsMarkIsNotOpened(t *testing.T) {
	store := memory.New(memory.Config{})
	r := openRig(t, 1, store)
	r.apply(puts(1, 4))
	r.flush()
	mark := r.machine.Flushed()
	place := string(append(binary.BigEndian.AppendUint16([]byte("\x01m"), merkle.BucketOf("1-2")), "1-2"...))
	lost := storage.Batch{Group: 1, Mark: mark, Items: []storage.Item{{Key: storage.Key{Section: storage.SectionRecords, Bytes: place}}}}
	r.must(store.Write([]storage.Batch{lost}))
	if _, err := r.machine.OpenSnapshot(); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("error %v, want ErrCorrupt", err)
	}
}

// resummed is a snapshot whose frames have right checksums, as far as it has frames, so that
// what is in them is read.
func resummed(snapshot []byte) []byte {
	snapshot = bytes.Clone(snapshot)
	for rest := snapshot[min(len(snapshot), len("QUORSNP1")):]; len(rest) >= 8; {
		n := binary.LittleEndian.Uint32(rest)
		if uint64(n)+8 > uint64(len(rest)) {
			break
		}
		binary.LittleEndian.PutUint32(rest[4+n:], crc32.Checksum(rest[4:4+n], crc32.MakeTable(crc32.Castagnoli)))
		rest = rest[8+n:]
	}
	return snapshot
}

func FuzzRestore(f *testing.F) {
	r := newRig(f, 1)
	f.Add(r.snapshot())
	r.apply(puts(1, 3))
	r.flush()
	f.Add(r.snapshot())
	f.Fuzz(func(t *testing.T, snapshot []byte) {
		snapshot = resummed(snapshot)
		r := newRig(t, 1)
		before := r.dump("m")
		err := r.machine.Restore(bytes.NewReader(snapshot))
		if err != nil {
			if !errors.Is(err, fsm.ErrSnapshot) {
				t.Fatalf("error %v is not ErrSnapshot", err)
			}
			if after := r.dump("m"); after != before {
				t.Fatalf("a refused snapshot left\n%s", after)
			}
			return
		}
		// Opening one compares all items with the digest.
		again := restored(t, 1, r.snapshot())
		if diff := cmp.Diff(r.dump("m"), again.dump("m")); diff != "" {
			t.Fatalf("an accepted snapshot does not give itself (-want +got):\n%s", diff)
		}
	})
}

// gateStore holds every write until the gate opens.
type gateStore struct {
	storage.Store
	gate chan struct{}
}

func (s *gateStore) Write(batches []storage.Batch) error {
	<-s.gate
	return s.Store.Write(batches)
}

func TestABatchInFlightDoesNotLandOnARestoredState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newRig(t, 1)
		source.apply(puts(20, 3))
		source.flush()
		snapshot := source.snapshot()

		store := &gateStore{Store: memory.New(memory.Config{}), gate: make(chan struct{})}
		r := openRig(t, 1, store)
		r.apply(puts(1, 3))
		var wg sync.WaitGroup
		background := func(work func() error) {
			wg.Go(func() {
				if err := work(); err != nil {
					t.Error(err)
				}
			})
		}
		background(func() error { return r.machine.Checkpoint(t.Context(), fsm.Position{Index: 1, Term: 1}) })
		synctest.Wait() // the batch is on its way
		background(func() error { return r.machine.Restore(bytes.NewReader(snapshot)) })
		synctest.Wait()
		close(store.gate)
		wg.Wait()
		again := r.crash()
		if diff := cmp.Diff(source.dump("m"), again.dump("m")); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
	})
}
