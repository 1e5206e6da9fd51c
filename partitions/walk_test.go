package partitions

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// replica is a client's copy of one map of each kind.
type replica struct {
	records map[string]protocol.Record
	live    map[string]map[string]protocol.ORRecord
	removed map[string]bool
}

func newReplica() *replica {
	return &replica{records: map[string]protocol.Record{}, live: map[string]map[string]protocol.ORRecord{}, removed: map[string]bool{}}
}

func (c *replica) put(key string, rec protocol.Record) {
	if met, ok := c.records[key]; !ok || rec.Timestamp.Compare(met.Timestamp) > 0 {
		c.records[key] = rec
	}
}

func (c *replica) merge(e protocol.OREntry) {
	for _, tag := range e.Tombstones {
		c.removed[tag] = true
		for key, records := range c.live {
			if delete(records, tag); len(records) == 0 {
				delete(c.live, key)
			}
		}
	}
	for _, rec := range e.Records {
		if c.removed[rec.Tag] {
			continue
		}
		if c.live[e.Key] == nil {
			c.live[e.Key] = map[string]protocol.ORRecord{}
		}
		c.live[e.Key][rec.Tag] = rec
	}
}

func (c *replica) leaves(kind merkle.Kind) *merkle.Leaves {
	var tree merkle.Tree
	for key, rec := range c.records {
		if kind == merkle.Records {
			tree.Update(merkle.BucketOf(key), 0, merkle.LWWItem(key, rec.Timestamp), 1, 0)
		}
	}
	for key, records := range c.live {
		if kind == merkle.Sets {
			var list []protocol.ORRecord
			for _, rec := range records {
				list = append(list, rec)
			}
			tree.Update(merkle.BucketOf(key), 0, merkle.ORItem(key, list), 1, 0)
		}
	}
	leaves := new(merkle.Leaves)
	tree.AddTo(leaves)
	return leaves
}

// walk goes down to what differs, as clients do: from the children that the server lists.
func (c *replica) walk(t *testing.T, r *Router, kind merkle.Kind) (leaves int) {
	s := r.NewSession()
	var visit func(path string)
	visit = func(path string) {
		bucket, leaf, err := merkle.ParsePath(path)
		require.NoError(t, err)
		switch {
		case leaf && kind == merkle.Records:
			leaves++
			for at, end := (LeafPlace{}), false; !end; {
				var err error
				at, end, err = r.LeafRecords(t.Context(), s, "m", bucket, at, func(key string, rec protocol.Record) bool {
					c.put(key, rec.Clone())
					return len(key)%2 == 0 // in portions
				})
				require.NoError(t, err)
			}
		case leaf:
			leaves++
			var entries []protocol.OREntry
			_, _, err := r.LeafSets(t.Context(), s, "m", bucket, LeafPlace{}, func(e protocol.OREntry) bool { entries = append(entries, e); return true })
			require.NoError(t, err)
			for _, e := range entries {
				c.merge(e)
			}
		default:
			tree, err := r.Tree(t.Context(), s, "m", kind)
			require.NoError(t, err)
			mine := c.leaves(kind).Children(path, false)
			for digit, hash := range tree.Children(path, false) {
				if hash != mine[digit] {
					visit(path + digit)
				}
			}
		}
	}
	visit("")
	return leaves
}

// FuzzWalk holds that after any history, of which a client knows any part, one walk of
// each tree gives it everything that the server has, and that the roots are equal then
// unless the client has what the server lacks.
func FuzzWalk(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte("put remove add drop, and some of it is known"))
	f.Fuzz(func(t *testing.T, history []byte) {
		r, g := newRealRouter(t)
		client, server := newReplica(), newReplica()
		for i, b := range history[:min(len(history), 300)] {
			key, known := fmt.Sprint("k", b>>3&7), b&0x80 != 0
			ts := protocol.Timestamp{Millis: int64(i + 1), NodeID: "c"}
			switch b & 7 {
			case 0, 1, 2:
				record := rec(int64(i+1), b&0x7f)
				if b&7 == 2 {
					record.Value = nil
				}
				g.put(t, key, record)
				server.put(key, record)
				if known {
					client.put(key, record)
				}
			case 3, 4, 5:
				e := protocol.OREntry{Key: key, Records: []protocol.ORRecord{{Tag: fmt.Sprint(i), Value: []byte{b & 0x7f}, Timestamp: ts}}}
				cmd, _ := command.AppendORAdd(nil, command.ORAdd{Map: "m", Key: key, Record: e.Records[0]})
				g.apply(t, key, cmd)
				server.merge(e)
				if known {
					client.merge(e)
				}
			default:
				tag := anyTag(server.live[key])
				cmd, _ := command.AppendORRemove(nil, command.ORRemove{Map: "m", Key: key, Tag: tag})
				g.apply(t, key, cmd)
				e := protocol.OREntry{Key: key, Tombstones: []string{tag}}
				server.merge(e)
				if known {
					client.merge(e)
				}
			}
		}
		for _, kind := range []merkle.Kind{merkle.Records, merkle.Sets} {
			client.walk(t, r, kind)
			tree, err := r.Tree(t.Context(), r.NewSession(), "m", kind)
			require.NoError(t, err)
			require.Equal(t, tree.Root(), client.leaves(kind).Root())
			require.Zero(t, client.walk(t, r, kind), "equal trees cost no leaf")
		}
		require.Equal(t, server.records, client.records)
		require.Equal(t, server.live, client.live)
	})
}

// anyTag is the smallest tag of a key, or one that nobody has.
func anyTag(records map[string]protocol.ORRecord) string {
	smallest := "none"
	for tag := range records {
		smallest = min(smallest, tag)
	}
	return smallest
}
