package remote

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
)

var stamp = protocol.Timestamp{Millis: 5, Counter: -1, NodeID: "n"}

// changes is one of each kind.
var changes = []fsm.Change{
	{Index: 7, Section: storage.SectionRecords, Map: "m", Key: "k", Existed: true, Old: []byte{1}, Origin: "o", Record: protocol.Record{Value: []byte{2, 3}, Timestamp: stamp, TTLMillis: 9}},
	{Index: 8, Section: storage.SectionRecords, Map: "m", Key: "deleted", Record: protocol.Record{Timestamp: stamp}},
	{Index: 9, Section: storage.SectionSets, Map: "s", Key: "k", Added: &protocol.ORRecord{Value: []byte{1}, Timestamp: stamp, Tag: "t", TTLMillis: 4}},
	{Index: 10, Section: storage.SectionSets, Map: "s", Key: "k", Removed: "t", Existed: true},
	{Index: 11, Section: storage.SectionCounters, Key: "likes"},
}

func TestChangesArriveAsTheyAre(t *testing.T) {
	for i := range changes {
		b := appendChange(nil, &changes[i])
		r := codec.NewReader(b)
		require.Equal(t, changes[i], takeChange(&r))
		require.NoError(t, r.End())
		for cut := range b {
			r := codec.NewReader(b[:cut])
			takeChange(&r)
			require.Error(t, r.Err(), "%d of %d bytes", cut, len(b))
		}
	}
}

func TestSetsArriveAsTheyAre(t *testing.T) {
	for _, e := range []protocol.OREntry{
		{Key: "none"},
		{Key: "k", Records: []protocol.ORRecord{*changes[2].Added, {Tag: "nil", Timestamp: stamp}}, Tombstones: []string{"a", "b"}},
	} {
		r := codec.NewReader(appendEntry(nil, &e))
		require.Equal(t, e, takeEntry(&r))
		require.NoError(t, r.End())
	}
}

// FuzzChanges holds that no bytes of a peer take more memory than they are.
func FuzzChanges(f *testing.F) {
	for i := range changes {
		f.Add(appendChange(nil, &changes[i]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := codec.NewReader(b)
		c := takeChange(&r)
		if r.Err() != nil || c.Section == storage.SectionCounters && c.Map != "" {
			return
		}
		again := codec.NewReader(appendChange(nil, &c))
		require.Equal(t, c, takeChange(&again))
		entry := codec.NewReader(b)
		takeEntry(&entry)
	})
}
