package merkle_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// vector is one recorded tree; cases that consist of steps are run by package fsm.
type vector struct {
	Name    string
	Records []struct {
		Key    string
		Record record
	}
	Entries []struct {
		Key        string
		Records    []record
		Tombstones []string
	}
	Expect struct {
		Root                   uint32
		Level1, Level2, Level3 map[string]uint32
		Items                  map[string]uint32
		HashInputs             map[string]string
	}
}

type record struct {
	Value     any
	ValueHex  string
	Timestamp protocol.Timestamp
	Tag       string
	TTL       json.RawMessage `json:"ttlMs"`
}

func (r record) msgpack(t *testing.T) []byte {
	t.Helper()
	if r.ValueHex != "" {
		b, err := hex.DecodeString(r.ValueHex)
		require.NoError(t, err)
		return b
	}
	b, err := msgpack.Marshal(r.Value)
	require.NoError(t, err)
	return b
}

func readVectors(t *testing.T, name string) []vector {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	var file struct{ Cases []vector }
	require.NoError(t, json.Unmarshal(b, &file))
	require.NotEmpty(t, file.Cases)
	return file.Cases
}

// grow puts items into trees, one for each of 271 partitions, and adds them up.
func grow(items map[string]uint32) *merkle.Leaves {
	var trees [protocol.PartitionCount]merkle.Tree
	for key, item := range items {
		trees[protocol.Partition(key)].Update(merkle.BucketOf(key), 0, item, 1, 1)
	}
	leaves := new(merkle.Leaves)
	for i := range trees {
		trees[i].AddTo(leaves)
	}
	return leaves
}

// check compares every node with the recorded ones.
func (v *vector) check(t *testing.T, items map[string]uint32) {
	for key, want := range v.Expect.Items {
		require.Equal(t, want, items[key], "%s: item %q", v.Name, key)
	}
	leaves := grow(items)
	require.Equal(t, v.Expect.Root, leaves.Root(), v.Name)
	for _, level := range []map[string]uint32{v.Expect.Level1, v.Expect.Level2, v.Expect.Level3} {
		for path, want := range level {
			require.Equal(t, want, leaves.Children(path[:len(path)-1], false)[path[len(path)-1:]], "%s: node %s", v.Name, path)
		}
	}
	require.Len(t, leaves.Children("", false), len(v.Expect.Level1), v.Name)
}

func TestLastWriteWinsTreesEqualTheClients(t *testing.T) {
	for _, v := range readVectors(t, "merkle_lww.json") {
		if v.Records == nil {
			continue
		}
		items := map[string]uint32{}
		newest := map[string]protocol.Timestamp{}
		for _, r := range v.Records {
			if met, ok := newest[r.Key]; !ok || r.Record.Timestamp.Compare(met) > 0 {
				newest[r.Key] = r.Record.Timestamp
				items[r.Key] = merkle.LWWItem(r.Key, r.Record.Timestamp)
			}
		}
		v.check(t, items)
	}
}

func TestObservedRemoveTreesEqualTheClients(t *testing.T) {
	for _, v := range readVectors(t, "merkle_ormap.json") {
		items := map[string]uint32{}
		nilTTL := false
		for _, e := range v.Entries {
			var records []protocol.ORRecord
			for _, r := range e.Records {
				if slices.Contains(e.Tombstones, r.Tag) {
					continue
				}
				rec := protocol.ORRecord{Value: r.msgpack(t), Timestamp: r.Timestamp, Tag: r.Tag}
				nilTTL = nilTTL || string(r.TTL) == "null"
				if len(r.TTL) > 0 {
					require.NoError(t, json.Unmarshal(r.TTL, &rec.TTLMillis))
				}
				records = append(records, rec)
			}
			if len(records) == 0 {
				continue
			}
			if want := v.Expect.HashInputs[e.Key]; want != "" && !nilTTL {
				require.Equal(t, want, string(merkle.AppendORText(nil, e.Key, records)), v.Name)
			}
			items[e.Key] = merkle.ORItem(e.Key, records)
		}
		if v.Entries == nil || nilTTL { // a lifetime of nil is never sent by this server
			continue
		}
		v.check(t, items)
	}
}
