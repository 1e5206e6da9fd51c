package partitions

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
	"github.com/quorate/quorate/protocol/merkle/merkletest"
)

// TestKeysOfOneHashAreSynced has a client that chose all keys of a map for their hash.
func TestKeysOfOneHashAreSynced(t *testing.T) {
	r, g := newRealRouter(t)
	server, client := newReplica(), newReplica()
	for i, key := range merkletest.Keys(5000) {
		record := rec(int64(i%2+1), byte(i&0x7f))
		g.put(t, key, record)
		server.put(key, record)
		if i%3 == 0 {
			client.put(key, record)
		}
	}
	require.Equal(t, 1, client.walk(t, r, merkle.Records), "all are in one leaf")
	require.Equal(t, server.records, client.records)
	require.Zero(t, client.walk(t, r, merkle.Records))
}

// TestWhatNoHashShowsIsInADelta makes changes that leave every hash of the tree as it was: a
// walk cannot find them, which is a limit of the protocol. A delta does not look at hashes.
func TestWhatNoHashShowsIsInADelta(t *testing.T) {
	r, g := newRealRouter(t)
	keys := merkletest.Keys(2)
	server, walker := newReplica(), newReplica()
	put := func(key string, at protocol.Timestamp, value byte) {
		record := protocol.Record{Value: []byte{value}, Timestamp: at}
		g.put(t, key, record)
		server.put(key, record)
	}
	first, second := rec(1).Timestamp, rec(2).Timestamp
	put(keys[0], first, 1)
	put(keys[1], second, 1)
	walker.walk(t, r, merkle.Records)
	require.Equal(t, server.records, walker.records)
	_, since, _, err := r.Delta(t.Context(), r.NewSession(), "m", protocol.Timestamp{}, 1<<20)
	require.NoError(t, err)

	was, is := merkle.LWWItem(keys[0], first), merkle.LWWItem(keys[0], rec(3).Timestamp)
	put(keys[0], rec(3).Timestamp, 2)
	put(keys[1], merkletest.Cancelling(keys[1], 4, merkle.LWWItem(keys[1], second), was, is), 2)
	put("for nothing", merkletest.Stamp("for nothing", 5, 0), 2)
	tree, err := r.Tree(t.Context(), r.NewSession(), "m", merkle.Records)
	require.NoError(t, err)
	require.Equal(t, walker.leaves(merkle.Records).Root(), tree.Root(), "otherwise the attack does not work")
	records, _, _, err := r.Delta(t.Context(), r.NewSession(), "m", since, 1<<20)
	require.NoError(t, err)
	require.Len(t, records, 3)
	for _, kr := range records {
		require.Equal(t, server.records[kr.Key], kr.Record)
	}

	// The next change in the leaf shows it, to whoever lacks any of it.
	put(keys[0], rec(6).Timestamp, 3)
	walker.walk(t, r, merkle.Records)
	require.Equal(t, server.records[keys[0]], walker.records[keys[0]])
	require.Equal(t, server.records[keys[1]], walker.records[keys[1]])
}
