package crdt_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/fsm/crdt"
	"github.com/quorate/quorate/protocol"
)

type vectorRecord struct {
	Value     json.RawMessage `json:"value"`
	Timestamp struct {
		Millis  int64  `json:"millis"`
		Counter int64  `json:"counter"`
		NodeID  string `json:"nodeId"`
	} `json:"timestamp"`
	TTLMillis int64 `json:"ttlMs"`
}

func (v vectorRecord) record() protocol.Record {
	return protocol.Record{
		Value:     []byte(v.Value),
		Timestamp: protocol.Timestamp{Millis: v.Timestamp.Millis, Counter: v.Timestamp.Counter, NodeID: v.Timestamp.NodeID},
		TTLMillis: v.TTLMillis,
	}
}

func nonASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 128 {
			return true
		}
	}
	return false
}

func TestMergeDecidesAsClientsDo(t *testing.T) {
	raw, err := os.ReadFile("testdata/lww_merge.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Kind, Name string
			Local      *vectorRecord
			Remote     vectorRecord
			Expect     struct {
				Changed bool
				Stored  vectorRecord
			}
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, tc := range file.Cases {
		if tc.Kind != "merge" {
			continue
		}
		remote, local := tc.Remote.record(), (*protocol.Record)(nil)
		if tc.Local != nil {
			l := tc.Local.record()
			local = &l
			// The order of ids beyond ASCII depends on each client's locale.
			if nonASCII(l.Timestamp.NodeID) || nonASCII(remote.Timestamp.NodeID) {
				continue
			}
		}
		checked++
		stored, changed := crdt.Merge(local, remote)
		if changed != tc.Expect.Changed {
			t.Errorf("%s: changed = %v, want %v", tc.Name, changed, tc.Expect.Changed)
		}
		if diff := cmp.Diff(tc.Expect.Stored.record(), stored); diff != "" {
			t.Errorf("%s: stored record (-want +got):\n%s", tc.Name, diff)
		}
	}
	if checked < 100 {
		t.Errorf("only %d cases checked", checked)
	}
}

// stamps draws from few values, so that ties at every level are common.
func stamps() *rapid.Generator[protocol.Timestamp] {
	return rapid.Custom(func(t *rapid.T) protocol.Timestamp {
		return protocol.Timestamp{
			Millis:  rapid.Int64Range(0, 2).Draw(t, "millis"),
			Counter: rapid.Int64Range(0, 2).Draw(t, "counter"),
			NodeID:  rapid.SampledFrom([]string{"a", "A", "b", "a-", "a_", "é"}).Draw(t, "node"),
		}
	})
}

// records gives equal stamps equal content, as one writer does.
func records() *rapid.Generator[protocol.Record] {
	return rapid.Custom(func(t *rapid.T) protocol.Record {
		ts := stamps().Draw(t, "stamp")
		return protocol.Record{Value: []byte(ts.String()), Timestamp: ts}
	})
}

func join(a, b protocol.Record) protocol.Record {
	out, _ := crdt.Merge(&a, b)
	return out
}

func TestMergeIsCommutativeAssociativeAndIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := records().Draw(t, "a"), records().Draw(t, "b"), records().Draw(t, "c")
		if diff := cmp.Diff(join(a, b), join(b, a)); diff != "" {
			t.Fatalf("not commutative:\n%s", diff)
		}
		if diff := cmp.Diff(join(join(a, b), c), join(a, join(b, c))); diff != "" {
			t.Fatalf("not associative:\n%s", diff)
		}
		if out, changed := crdt.Merge(&a, a); changed || !cmp.Equal(out, a) {
			t.Fatalf("not idempotent: %v, changed %v", out, changed)
		}
	})
}

func TestAboveWinsAgainstWhatItMeets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		met, stamp := stamps().Draw(t, "met"), stamps().Draw(t, "stamp")
		met.Counter = rapid.SampledFrom([]int64{met.Counter, 1<<53 - 1}).Draw(t, "met counter")
		got := crdt.Above(met, stamp)
		if !crdt.Wins(met, got) {
			t.Fatalf("Above(%v, %v) = %v does not win", met, stamp, got)
		}
		if crdt.Wins(met, stamp) && got != stamp {
			t.Fatalf("Above(%v, %v) = %v, want the stamp unchanged", met, stamp, got)
		}
		if got.NodeID != stamp.NodeID || got.Counter > 1<<53-1 {
			t.Fatalf("Above(%v, %v) = %v", met, stamp, got)
		}
	})
}
