package fsm_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol/merkle"
)

var errScanned = errors.New("records were scanned")

// unscannedStore refuses to scan what the hash trees are made of.
type unscannedStore struct{ storage.Store }

func (s unscannedStore) NewReader() (storage.Reader, error) {
	r, err := s.Store.NewReader()
	return unscannedReader{r}, err
}

type unscannedReader struct{ storage.Reader }

func (r unscannedReader) Scan(group uint32, section storage.Section, prefix, from string, fn func(string, []byte) bool) error {
	if section == storage.SectionRecords || section == storage.SectionSets {
		return errScanned
	}
	return r.Reader.Scan(group, section, prefix, from, fn)
}

func TestOpeningReadsNoRecords(t *testing.T) {
	r := newRig(t, 1, batchSize(3))
	r.apply(
		entry(1, ts(1, 0), put("m", "a", "1", ts(1, 0)), put("m", "b", "2", ts(1, 1)), put("other", "a", "3", ts(1, 2))),
		entry(2, ts(2, 0), orAdd("m", "a", "x", ts(2, 0)), orAdd("m", "b", "y", ts(2, 1))),
	)
	r.flush()
	r.apply(
		entry(3, ts(3, 0), put("m", "a", "", ts(3, 0)), orRemove("m", "a", ts(2, 0).String())),
		entry(4, ts(4, 0), put("m", "c", "4", ts(4, 0)), put("m", "d", "5", ts(4, 1))),
		entry(5, ts(5, 0), r.collect(3, 10)),
	)
	r.flush()
	want, snapshot := r.dump("m", "other"), r.snapshot()
	changed, _, err := r.machine.ChangedBuckets("m", 3)
	r.must(err)
	roots := map[string]uint32{}
	for _, kind := range []merkle.Kind{merkle.Records, merkle.Sets} {
		for _, name := range []string{"m", "other"} {
			roots[name+fmt.Sprint(kind)] = r.leaves(name, kind).Root()
		}
	}
	kept := r.store
	r.store = unscannedStore{kept}
	opened := r.crash()
	for _, kind := range []merkle.Kind{merkle.Records, merkle.Sets} {
		for _, name := range []string{"m", "other"} {
			if got := opened.leaves(name, kind).Root(); got != roots[name+fmt.Sprint(kind)] {
				t.Errorf("root of tree %d of %q is %#x after opening", kind, name, got)
			}
		}
	}
	again, _, err := opened.machine.ChangedBuckets("m", 3)
	r.must(err)
	if len(again) != len(changed) || len(again) == 0 {
		t.Errorf("buckets changed since 3: %v, after opening %v", changed, again)
	}
	rebuilt := restored(t, 1, snapshot)
	if got := rebuilt.dump("m", "other"); got != want {
		t.Errorf("rebuilt from a snapshot:\n%s\nwant\n%s", got, want)
	}
	// A restored state has no trees in the store until the next cut.
	rebuilt.apply(entry(6, ts(6, 0), put("m", "e", "6", ts(6, 0))))
	rebuilt.flush()
	want = rebuilt.dump("m", "other")
	rebuilt.store = unscannedStore{rebuilt.store}
	rebuilt = rebuilt.crash()
	rebuilt.store = rebuilt.store.(unscannedStore).Store
	reopened := rebuilt.crash()
	if got := reopened.dump("m", "other"); got != want {
		t.Errorf("reopened:\n%s\nwant\n%s", got, want)
	}
}
