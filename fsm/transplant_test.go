package fsm_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
)

var transplantConfiguration = []byte("configuration")

func TestATransplantKeepsAllButTheOldCluster(t *testing.T) {
	rnd := newRand(t)
	for _, group := range []uint32{0, 1} {
		old := reference(t, group, randomLog(t, rnd, group, 200))
		old.flush()
		store := memory.New(memory.Config{})
		info, err := fsm.Transplant(store, group, bytes.NewReader(old.snapshot()), transplantConfiguration)
		old.must(err)
		checked, err := fsm.CheckSnapshot(group, bytes.NewReader(old.snapshot()))
		old.must(err)
		if diff := cmp.Diff(checked, info); diff != "" || info.Items == 0 {
			t.Errorf("info (-checked +transplanted):\n%s", diff)
		}
		r := openRig(t, group, store)
		for _, name := range modelMaps {
			if got, want := r.scan(name), old.scan(name); got != want {
				t.Errorf("map %s reads as\n%s, want\n%s", name, got, want)
			}
		}
		mark := r.machine.Flushed()
		index, _ := old.machine.Applied()
		if mark.Index != index || mark.Term != 1 || !bytes.Equal(mark.Configuration, transplantConfiguration) || mark.ConfigurationIndex != index {
			t.Errorf("mark %+v, want index %d in term 1", mark, index)
		}
		if c := r.machine.Cluster(); c.Genesis != nil || len(c.Members) > 0 {
			t.Errorf("documents of the old cluster: %+v", c)
		}
		r.snapshot() // fails when the digest is not that of the items
	}
}

// scan is the records of a map as text.
func (r *rig) scan(name string) string {
	r.t.Helper()
	var b bytes.Buffer
	r.dumpTrees(&b, name)
	return b.String()
}

func TestATransplantRaisesTheTokens(t *testing.T) {
	for _, held := range []uint64{0, 3} {
		r := newRig(t, 1)
		for i := range held {
			r.apply(entry(i+1, ts(1, int64(i)), request(1, i+1, 0), byToken(command.KindUnlock, i+1)))
		}
		r.flush()
		store := memory.New(memory.Config{})
		_, err := fsm.Transplant(store, 1, bytes.NewReader(r.snapshot()), transplantConfiguration)
		r.must(err)
		again := openRig(t, 1, store)
		index, _ := again.machine.Applied()
		res := again.apply(entry(index+1, ts(2, 0), request(9, 9, 0)))[0][0]
		outcome, err := command.DecodeOutcome(res.Value)
		r.must(err)
		if want := uint64(1<<32) + held + 1; outcome.Token != want {
			t.Errorf("token %d after %d in the old cluster, want %d", outcome.Token, held, want)
		}
	}
}

func TestAnUnusableSnapshotReplacesNothing(t *testing.T) {
	r := newRig(t, 1)
	r.apply(puts(1, 50))
	r.flush()
	snapshot := r.snapshot()
	damaged := bytes.Clone(snapshot)
	damaged[len(damaged)/2] ^= 1
	for name, replace := range map[string]func(storage.Store) error{
		"damaged transplant": func(s storage.Store) error {
			_, err := fsm.Transplant(s, 1, bytes.NewReader(damaged), transplantConfiguration)
			return err
		},
		"damaged": func(s storage.Store) error {
			_, err := fsm.Replace(s, 1, bytes.NewReader(damaged), 0)
			return err
		},
		"of another group": func(s storage.Store) error {
			_, err := fsm.Replace(s, 2, bytes.NewReader(snapshot), 0)
			return err
		},
		"too old": func(s storage.Store) error {
			_, err := fsm.Replace(s, 1, bytes.NewReader(snapshot), 2)
			return err
		},
	} {
		other := newRig(t, 1)
		other.apply(puts(1, 3))
		other.flush()
		want := other.dump("m")
		other.must(other.machine.Close())
		if err := replace(other.store); !errors.Is(err, fsm.ErrSnapshot) {
			t.Errorf("%s: %v, want ErrSnapshot", name, err)
		}
		if diff := cmp.Diff(want, openRig(t, 1, other.store).dump("m")); diff != "" {
			t.Errorf("%s: state (-before +after):\n%s", name, diff)
		}
	}
	store := memory.New(memory.Config{})
	_, err := fsm.Replace(store, 1, bytes.NewReader(snapshot), 1)
	r.must(err)
	if diff := cmp.Diff(r.dump("m"), openRig(t, 1, store).dump("m")); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}
