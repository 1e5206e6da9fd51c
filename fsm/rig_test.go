package fsm_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is one machine with its store and its flusher, which runs only when a test
// says so.
type rig struct {
	t       testing.TB
	group   uint32
	store   storage.Store
	flusher *writebehind.Flusher
	machine *fsm.Machine
	changes []*fsm.Changes
}

// option changes the settings of a rig.
type option func(*writebehind.Config, *fsm.Config)

func batchSize(n int) option {
	return func(c *writebehind.Config, _ *fsm.Config) { c.BatchSize = n }
}

func capacity(n int) option {
	return func(c *writebehind.Config, _ *fsm.Config) { c.Capacity = n }
}

func cacheBytes(n int) option {
	return func(_ *writebehind.Config, c *fsm.Config) { c.Budget = fsm.NewBudget(n) }
}

func newRig(t testing.TB, group uint32, opts ...option) *rig {
	t.Helper()
	return openRig(t, group, memory.New(memory.Config{}), opts...)
}

// openRig opens a machine on a store that may hold state already.
func openRig(t testing.TB, group uint32, store storage.Store, opts ...option) *rig {
	t.Helper()
	flusherConfig, config := writebehind.DefaultConfig(), fsm.DefaultConfig(group)
	for _, o := range opts {
		o(&flusherConfig, &config)
	}
	r := &rig{t: t, group: group, store: store}
	var err error
	r.flusher, err = writebehind.New(flusherConfig, writebehind.Deps{Logger: hclog.NewNullLogger(), Store: store})
	r.must(err)
	r.machine, err = fsm.Open(config, fsm.Deps{
		Logger:   hclog.NewNullLogger(),
		Store:    store,
		Flusher:  r.flusher,
		OnChange: func(c *fsm.Changes) { r.changes = append(r.changes, c) },
	})
	r.must(err)
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// crash reopens the machine on what the store holds.
func (r *rig) crash(opts ...option) *rig {
	r.t.Helper()
	r.must(r.machine.Close())
	return openRig(r.t, r.group, r.store, opts...)
}

func (r *rig) apply(entries ...fsm.Entry) [][]command.Result {
	r.t.Helper()
	results, err := r.machine.Apply(entries)
	r.must(err)
	return results
}

// flush moves everything to the store.
func (r *rig) flush() {
	r.t.Helper()
	index, term := r.machine.Applied()
	r.must(r.machine.Checkpoint(r.t.Context(), fsm.Position{Index: index, Term: term}))
}

// dump is everything that readers can see of the state.
func (r *rig) dump(maps ...string) string {
	r.t.Helper()
	var b bytes.Buffer
	index, digest := r.machine.Digest()
	millis, counter := r.machine.ClockFloor()
	fmt.Fprintf(&b, "index %d digest %#x clock %d:%d\n", index, digest, millis, counter)
	for _, name := range maps {
		_, err := r.machine.Scan(name, "", func(key string, rec protocol.Record) bool {
			fmt.Fprintf(&b, "%q %q %x %s ttl %d\n", name, key, []byte(rec.Value), rec.Timestamp, rec.TTLMillis)
			return true
		})
		r.must(err)
		r.dumpTrees(&b, name)
	}
	graves, err := r.machine.Graves(1<<60, 1<<30)
	r.must(err)
	fmt.Fprintf(&b, "%+v, tombstones %q\n", r.machine.Horizon(), graves)
	if n := fsm.Tombstones(r.machine); n != len(graves) {
		r.t.Errorf("%d tombstones are counted of %d", n, len(graves))
	}
	r.dumpLocks(&b)
	cluster := r.machine.Cluster()
	fmt.Fprintf(&b, "%+v %+v %+v\n", cluster.Genesis, cluster.Members, cluster.Table)
	if cluster.Database != nil || r.machine.Adopted() {
		fmt.Fprintf(&b, "%+v adopted %v token %d\n", cluster.Database, r.machine.Adopted(), r.machine.Fence())
	}
	return b.String()
}

// dumpLocks adds the locks, and the counters that tests use.
func (r *rig) dumpLocks(b *bytes.Buffer) {
	r.t.Helper()
	gateways := r.machine.Gateways()
	for _, name := range r.machine.Locks() {
		fmt.Fprintf(b, "lock %+v\n", *r.machine.Lock(name))
	}
	for _, gateway := range slices.Sorted(maps.Keys(gateways)) {
		fmt.Fprintf(b, "gateway %q %d\n", gateway, gateways[gateway])
	}
	for _, name := range []string{"likes", "c0", "c1"} {
		cells, _, err := r.machine.Counter(name)
		r.must(err)
		if len(cells) > 0 {
			fmt.Fprintf(b, "counter %q %+v\n", name, cells)
		}
	}
}

// dumpTrees adds what clients that sync can see of a map.
func (r *rig) dumpTrees(b *bytes.Buffer, name string) {
	r.t.Helper()
	fmt.Fprintf(b, "%q records: root %#x\n", name, r.leaves(name, merkle.Records).Root())
	fmt.Fprintf(b, "%q sets: root %#x\n", name, r.leaves(name, merkle.Sets).Root())
	for _, bucket := range r.buckets(name, merkle.Records) {
		leaf := r.leaf(name, bucket)
		r.checkPortions(name, bucket, leaf)
		for _, rec := range leaf {
			fmt.Fprintf(b, "%q leaf %s: %q %s\n", name, merkle.Path(bucket), rec.Key, rec.Record.Timestamp)
		}
	}
	for _, bucket := range r.buckets(name, merkle.Sets) {
		for _, e := range r.sets(name, bucket) {
			fmt.Fprintf(b, "%q set %s: %q removed %q\n", name, merkle.Path(bucket), e.Key, e.Tombstones)
			for _, rec := range e.Records {
				fmt.Fprintf(b, "\t%q %x %s ttl %d\n", rec.Tag, []byte(rec.Value), rec.Timestamp, rec.TTLMillis)
			}
		}
	}
}

// leaf is the records of a bucket, in key order.
func (r *rig) leaf(name string, bucket uint16) []protocol.KeyedRecord {
	r.t.Helper()
	var list []protocol.KeyedRecord
	leaf := fsm.Leaf{Map: name, Bucket: bucket}
	r.must(r.machine.LeafRecords(leaf, 0, func(key string, rec protocol.Record) bool {
		list = append(list, protocol.KeyedRecord{Key: key, Record: rec.Clone()})
		return true
	}))
	if !slices.IsSortedFunc(list, func(a, b protocol.KeyedRecord) int { return strings.Compare(a.Key, b.Key) }) {
		r.t.Errorf("leaf %d of %q is not in key order", bucket, name)
	}
	return list
}

// checkPortions holds that the records of a leaf are the same when they are read one by one.
func (r *rig) checkPortions(name string, bucket uint16, list []protocol.KeyedRecord) {
	r.t.Helper()
	leaf := fsm.Leaf{Map: name, Bucket: bucket}
	for i := 0; ; i++ {
		more := false
		r.must(r.machine.LeafRecords(leaf, 0, func(key string, _ protocol.Record) bool {
			if i >= len(list) || key != list[i].Key {
				r.t.Errorf("leaf %d of %q from %q on begins with %q", bucket, name, leaf.From, key)
			}
			leaf.From, more = key+"\x00", true
			return false
		}))
		if !more {
			if i != len(list) {
				r.t.Errorf("leaf %d of %q ends after %d of %d records", bucket, name, i, len(list))
			}
			return
		}
	}
}

// sets is the keys of a bucket of an observed-remove map, in key order.
func (r *rig) sets(name string, bucket uint16) (list []protocol.OREntry) {
	r.t.Helper()
	r.must(r.machine.LeafSets(fsm.Leaf{Map: name, Bucket: bucket}, func(e protocol.OREntry) bool {
		list = append(list, e)
		return true
	}))
	return list
}

func (r *rig) leaves(name string, kind merkle.Kind) *merkle.Leaves {
	r.t.Helper()
	leaves := new(merkle.Leaves)
	_, err := r.machine.AddLeaves(name, kind, leaves)
	r.must(err)
	return leaves
}

// buckets are those of a map's tree that have keys, found as clients find them.
func (r *rig) buckets(name string, kind merkle.Kind) (list []uint16) {
	r.t.Helper()
	leaves := r.leaves(name, kind)
	var walk func(path string)
	walk = func(path string) {
		bucket, leaf, err := merkle.ParsePath(path)
		r.must(err)
		if leaf {
			list = append(list, bucket)
			return
		}
		children := leaves.Children(path, false)
		for _, digit := range slices.Sorted(maps.Keys(children)) {
			walk(path + digit)
		}
	}
	walk("")
	return list
}

// collect is the command that drops the oldest tombstones up to a time.
func (r *rig) collect(throughMillis int64, limit int) command.Raw {
	r.t.Helper()
	graves, err := r.machine.Graves(throughMillis, limit)
	r.must(err)
	c := command.Collect{Graves: graves}
	if len(graves) < limit {
		c.ThroughMillis = throughMillis
	}
	return command.EncodeCollect(c)
}

// snapshot returns the bytes of the flushed state.
func (r *rig) snapshot() []byte {
	r.t.Helper()
	s, err := r.machine.OpenSnapshot()
	r.must(err)
	var b bytes.Buffer
	n, err := b.ReadFrom(s)
	r.must(err)
	r.must(s.Close())
	if n != s.Size() {
		r.t.Errorf("snapshot has %d bytes, announced %d", n, s.Size())
	}
	return b.Bytes()
}

// ts is a stamp of node "n1".
func ts(millis, counter int64) protocol.Timestamp {
	return protocol.Timestamp{Millis: millis, Counter: counter, NodeID: "n1"}
}

// entry makes a log entry of term 1.
func entry(index uint64, stamp protocol.Timestamp, cmds ...command.Raw) fsm.Entry {
	return fsm.Entry{Index: index, Term: 1, Data: command.AppendEntry(nil, stamp, cmds)}
}

// put is a client's write of text at its own stamp; empty text deletes.
func put(mapName, key, text string, at protocol.Timestamp) command.Raw {
	return putRecord(mapName, key, record(text, at))
}

func putRecord(mapName, key string, rec protocol.Record) command.Raw {
	return command.EncodePut(command.Put{Map: mapName, Key: key, Record: rec})
}

func record(text string, at protocol.Timestamp) protocol.Record {
	rec := protocol.Record{Timestamp: at}
	if text != "" {
		rec.Value = append([]byte{0xa0 | byte(len(text))}, text...)
	}
	return rec
}

// orAdd adds text under a tag that is the text of its stamp.
func orAdd(mapName, key, text string, at protocol.Timestamp) command.Raw {
	return orAddRecord(mapName, key, protocol.ORRecord{Value: record(text, at).Value, Timestamp: at, Tag: at.String()})
}

func orAddRecord(mapName, key string, rec protocol.ORRecord) command.Raw {
	c, _ := command.AppendORAdd(nil, command.ORAdd{Map: mapName, Key: key, Record: rec})
	return c
}

func orRemove(mapName, key, tag string) command.Raw {
	c, _ := command.AppendORRemove(nil, command.ORRemove{Map: mapName, Key: key, Tag: tag})
	return c
}

func orRemoveHomeless(mapName, tag string) command.Raw {
	c, _ := command.AppendORRemove(nil, command.ORRemove{Map: mapName, Tag: tag, Homeless: true})
	return c
}
