package fsm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/bolt"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
)

var seedFlag = flag.Uint64("seed", 0, "seed of randomised tests; 0 takes a new one")

func newRand(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// modelMaps are the maps that random logs write; one name is a prefix of another.
var modelMaps = []string{"", "m", "mm", "\x01m"}

// randomLog makes a log that is full of ties, repeats and refusals.
func randomLog(t testing.TB, rnd *rand.Rand, group uint32, entries int) []fsm.Entry {
	var log []fsm.Entry
	proposer := newRig(t, group) // knows the tombstones
	index, millis := uint64(0), int64(1000)
	for range entries {
		index += 1 + uint64(rnd.IntN(2))
		millis += int64(rnd.IntN(3))
		term := 1 + index/20
		if rnd.IntN(15) == 0 {
			log = append(log, fsm.Entry{Index: index, Term: term, Data: fmt.Append(nil, "conf", index), Configuration: true})
			continue
		}
		var cmds []command.Raw
		for range rnd.IntN(9) {
			cmds = append(cmds, randomCommand(rnd, group, millis))
		}
		if rnd.IntN(6) == 0 {
			cmds = append(cmds, proposer.collect(millis-int64(rnd.IntN(6)), 1+rnd.IntN(6)))
		}
		log = append(log, fsm.Entry{Index: index, Term: term, Data: command.AppendEntry(nil, ts(millis, int64(rnd.IntN(5))), cmds)})
		proposer.apply(log[len(log)-1])
	}
	return log
}

func randomCommand(rnd *rand.Rand, group uint32, millis int64) command.Raw {
	if rnd.IntN(30) == 0 {
		return command.Raw{Kind: command.Ignorable | 1, Version: 7}
	}
	if rnd.IntN(40) == 0 {
		return command.EncodeAdopt(command.Adopt{Token: rnd.Uint64N(20), Complete: rnd.IntN(3) == 0})
	}
	if rnd.IntN(4) == 0 {
		return randomLockCommand(rnd)
	}
	if group != fsm.SystemGroup || rnd.IntN(3) == 0 {
		if rnd.IntN(2) == 0 {
			return randomSetCommand(rnd, millis)
		}
		return randomPut(rnd, millis)
	}
	id := fmt.Sprintf("n%d#%d", rnd.IntN(3), rnd.IntN(2))
	switch rnd.IntN(7) {
	case 4:
		return recovery(fmt.Sprint(rnd.IntN(4)), id)
	case 5:
		return document(rnd.Uint64N(4), fmt.Sprint("d", rnd.IntN(2)), id)
	case 6:
		return command.EncodeDatabasePut(system.Database{Instance: fmt.Sprint(rnd.IntN(3)), Epoch: 1})
	case 0:
		return command.EncodeGenesis(system.Genesis{ClusterID: fmt.Sprint(rnd.IntN(2)), Groups: 7, ReplicationFactor: 3, Founder: id})
	case 1:
		return command.EncodeTablePut(uint32(rnd.IntN(4)), system.Table{Groups: []system.Placement{{Voters: []string{id, "x"}, Leader: id, LeaderTerm: rnd.Uint64N(9)}}})
	default:
		return command.EncodeMemberPut(rnd.Uint64N(4), system.Member{
			ID: id, NodeID: id[:2], PeerAddr: fmt.Sprint(rnd.IntN(9)), Status: system.Status(rnd.IntN(8)), SinceMillis: millis,
		})
	}
}

// randomLockCommand makes commands of few sessions for few locks and counters.
func randomLockCommand(rnd *rand.Rand) command.Raw {
	name := fmt.Sprint("c", rnd.IntN(2))
	s := lock.Session{Gateway: fmt.Sprint("g", rnd.IntN(2)), Number: rnd.Uint64N(3)}
	req := command.LockRequest{Name: name, Request: lock.Request{Session: s, ID: rnd.Uint64N(30), TTLMillis: rnd.Int64N(2) * 1000}}
	token := command.LockToken{Name: name, Token: rnd.Uint64N(40), Lease: rnd.Uint64N(2), TTLMillis: 500}
	end := command.LockSession{Session: s, Beat: rnd.Uint64N(60)}
	switch rnd.IntN(15) {
	case 14:
		return command.EncodeRaiseTokens(command.RaiseTokens{By: []uint64{0, 3, 1 << 32, fsm.MaxToken}[rnd.IntN(4)]})
	case 0, 1, 2, 3, 4:
		return command.EncodeLockRequest(command.KindLock, req)
	case 5:
		return command.EncodeLockRequest(command.KindCancel, req)
	case 6:
		return command.EncodeLockToken(command.KindExpire, token)
	case 7:
		return command.EncodeLockToken(command.KindRenew, token)
	case 8:
		if end.Session.Number += rnd.Uint64N(20); rnd.IntN(2) == 0 {
			return command.EncodeLockSession(command.KindEndSession, end)
		}
		return command.EncodeLockSession(command.KindEndGateway, end)
	case 9:
		return command.EncodeLockSession(command.KindBeat, end)
	case 10:
		if delta, dedup := float64(rnd.IntN(9)-4)/2, fmt.Sprint(rnd.IntN(20)); rnd.IntN(2) == 0 {
			return firstAdd(name, delta, dedup)
		} else {
			return command.EncodeCounterAdd(command.CounterAdd{Life: randomLife(rnd), Name: name, Delta: delta, Dedup: dedup})
		}
	case 11:
		writer := []string{"a", "b", "$sys/adds", "$sys/adds/x"}[rnd.IntN(4)]
		return command.EncodeCounterMerge(command.CounterMerge{
			Life: randomLife(rnd), Name: name, Cells: []command.Cell{{Writer: writer, Positive: float64(rnd.IntN(9)), Negative: 0.1}},
		})
	default:
		return command.EncodeLockToken(command.KindUnlock, token)
	}
}

func randomLife(rnd *rand.Rand) string { return []string{"", "x", "x.2"}[rnd.IntN(3)] }

// randomSetCommand adds and removes few tags under few keys, so that adds meet removals
// and other keys.
func randomSetCommand(rnd *rand.Rand, millis int64) command.Raw {
	mapName, key := modelMaps[rnd.IntN(len(modelMaps))], []string{"", "a", "b", "\xff"}[rnd.IntN(4)]
	tag := fmt.Sprint("tag", rnd.IntN(12))
	switch rnd.IntN(6) {
	case 0:
		return orRemoveHomeless(mapName, tag)
	case 1, 2:
		return orRemove(mapName, key, tag)
	}
	rec := protocol.ORRecord{Tag: tag, Timestamp: protocol.Timestamp{Millis: millis - 5 + int64(rnd.IntN(10)), NodeID: "a"}}
	// Tag and stamp say what the record is.
	rec.Value = record(tag+fmt.Sprint(rec.Timestamp.Millis), rec.Timestamp).Value
	if rnd.IntN(40) == 0 {
		rec.Value = make([]byte, 5<<20)
	}
	return orAddRecord(mapName, key, rec)
}

func randomPut(rnd *rand.Rand, millis int64) command.Raw {
	p := command.Put{
		Map: modelMaps[rnd.IntN(len(modelMaps))],
		Key: []string{"", "a", "b", "ab", "\xff", strings.Repeat("k", rnd.IntN(300))}[rnd.IntN(6)],
		Record: record(fmt.Sprint(rnd.IntN(100)), protocol.Timestamp{
			Millis: millis - 5 + int64(rnd.IntN(10)), Counter: int64(rnd.IntN(3)), NodeID: []string{"a", "B", "n1"}[rnd.IntN(3)],
		}),
		Origin: []string{"", "conn"}[rnd.IntN(2)],
	}
	if rnd.IntN(4) == 0 {
		p.Record.Value = nil
	}
	if rnd.IntN(4) == 0 {
		p.Record.TTLMillis = int64(rnd.IntN(1000))
	}
	if rnd.IntN(3) == 0 {
		p.Stamped, p.Overwrite = true, rnd.IntN(3) > 0
		if rnd.IntN(2) == 0 {
			p.Dedup = fmt.Sprint("op", rnd.IntN(40))
		}
	}
	if rnd.IntN(40) == 0 {
		p.Key = strings.Repeat("k", storage.MaxKeyBytes-rnd.IntN(80))
	}
	return command.EncodePut(p)
}

// replica applies a log in its own way and keeps what it answered.
type replica struct {
	*rig
	log  []fsm.Entry
	opts []option
	// next is the position in log from which to apply.
	next    int
	results map[uint64][]command.Result
	events  map[uint64][]fsm.Change
}

// step applies some more entries, and returns false at the end of the log.
func (r *replica) step(n int) bool {
	r.t.Helper()
	entries := r.log[r.next:min(r.next+n, len(r.log))]
	r.changes = nil
	for i, list := range r.apply(entries...) {
		index := entries[i].Index
		if before, again := r.results[index]; again && !cmp.Equal(before, list) {
			r.t.Fatalf("entry %d answered\n%v and later\n%v", index, before, list)
		}
		r.results[index] = list
	}
	fresh := map[uint64][]fsm.Change{}
	for _, c := range r.changes {
		for _, change := range c.List {
			fresh[change.Index] = append(fresh[change.Index], change)
		}
	}
	for _, index := range slices.Sorted(maps.Keys(fresh)) {
		if before, again := r.events[index]; again && !cmp.Equal(before, fresh[index]) {
			r.t.Fatalf("entry %d changed\n%v and later\n%v", index, before, fresh[index])
		}
		r.events[index] = fresh[index]
	}
	r.next += len(entries)
	return r.next < len(r.log)
}

// crashAndReplay starts again from the flushed state.
func (r *replica) crashAndReplay() {
	r.t.Helper()
	r.rig = r.crash(r.opts...)
	r.seek()
}

// seek continues the log behind the machine's applied entry.
func (r *replica) seek() {
	index, _ := r.machine.Applied()
	r.next = slices.IndexFunc(r.log, func(e fsm.Entry) bool { return e.Index > index })
	if r.next < 0 {
		r.next = len(r.log)
	}
}

// install replaces the state by another replica's flushed one, if that is newer.
func (r *replica) install(from *replica) {
	r.t.Helper()
	mine, _ := r.machine.Applied()
	if from.machine.Flushed().Index < mine {
		return
	}
	snapshot := from.snapshot()
	r.must(r.machine.Restore(strings.NewReader(string(snapshot))))
	r.seek()
}

func newReplica(t testing.TB, group uint32, log []fsm.Entry, store storage.Store, opts ...option) *replica {
	return &replica{
		rig: openRig(t, group, store, opts...), log: log, opts: opts,
		results: map[uint64][]command.Result{}, events: map[uint64][]fsm.Change{},
	}
}

// reference applies the whole log at once.
func reference(t testing.TB, group uint32, log []fsm.Entry) *replica {
	r := newReplica(t, group, log, memory.New(memory.Config{}), batchSize(1<<30))
	r.step(len(log))
	return r
}

// sameAs compares everything that can be seen; entries that a snapshot covered have
// no results and no events here.
func (r *replica) sameAs(want *replica) {
	r.t.Helper()
	if diff := cmp.Diff(want.dump(modelMaps...), r.dump(modelMaps...)); diff != "" {
		r.t.Fatalf("state (-want +got):\n%s", diff)
	}
	for index, list := range r.results {
		if diff := cmp.Diff(want.results[index], list); diff != "" {
			r.t.Fatalf("results of entry %d (-want +got):\n%s", index, diff)
		}
		if diff := cmp.Diff(want.events[index], r.events[index]); diff != "" {
			r.t.Fatalf("changes of entry %d (-want +got):\n%s", index, diff)
		}
	}
}

func openBolt(t testing.TB) storage.Store {
	s, err := bolt.Open(bolt.Config{Path: filepath.Join(t.TempDir(), "db")}, bolt.Deps{Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestReplicasAgreeWhateverTheyFlushLoseAndRestore(t *testing.T) {
	rnd := newRand(t)
	for round := range 8 {
		group := uint32(round % 2)
		log := randomLog(t, rnd, group, 100)
		want := reference(t, group, log)
		replicas := []*replica{
			newReplica(t, group, log, memory.New(memory.Config{}), batchSize(1), cacheBytes(0)),
			newReplica(t, group, log, memory.New(memory.Config{}), batchSize(7), cacheBytes(1000)),
			newReplica(t, group, log, memory.New(memory.Config{}), batchSize(100)),
		}
		if round < 2 {
			replicas = append(replicas, newReplica(t, group, log, openBolt(t), batchSize(20)))
		}
		for running := true; running; {
			running = false
			for _, r := range replicas {
				running = r.step(1+rnd.IntN(12)) || running
				switch rnd.IntN(12) {
				case 0, 1:
					r.flush()
				case 2:
					r.crashAndReplay()
					running = true
				case 3:
					r.install(replicas[rnd.IntN(len(replicas))])
					running = true
				}
			}
		}
		for _, r := range replicas {
			r.sameAs(want)
			r.flush()
			if !bytes.Equal(replicas[0].snapshot(), r.snapshot()) {
				t.Fatal("snapshots of equal states differ")
			}
		}
	}
}

// cutStore loses power after some writes.
type cutStore struct {
	storage.Store
	left int
}

var errCut = errors.New("power cut")

func (s *cutStore) Write(batches []storage.Batch) error {
	if s.left == 0 {
		return errCut
	}
	s.left--
	return s.Store.Write(batches)
}

func TestACrashAfterAnyFlushReplaysToTheSameState(t *testing.T) {
	rnd := newRand(t)
	for _, group := range []uint32{0, 1} {
		log := randomLog(t, rnd, group, 30)
		want := reference(t, group, log)
		for writes := 0; ; writes++ {
			store := memory.New(memory.Config{})
			r := newReplica(t, group, log, &cutStore{Store: store, left: writes}, batchSize(5))
			for r.step(1 + rnd.IntN(4)) {
			}
			index, term := r.machine.Applied()
			err := r.machine.Checkpoint(t.Context(), fsm.Position{Index: index, Term: term})
			if err != nil && !errors.Is(err, errCut) {
				t.Fatal(err)
			}
			r.store = store
			r.crashAndReplay()
			if writes > 0 && r.next == 0 {
				t.Fatalf("after %d writes the store holds nothing", writes)
			}
			r.step(len(log))
			r.sameAs(want)
			if err == nil {
				break
			}
		}
	}
}

// forget drops the tombstones of a collection. came holds, for each name, the grave that
// its present record would have.
func forget(t *testing.T, state map[string]protocol.Record, came map[string]string, c command.Raw) {
	m, err := command.DecodeCollect(c)
	if err != nil {
		t.Fatal(err)
	}
	for name, rec := range state {
		if rec.IsTombstone() && slices.Contains(m.Graves, came[name]) {
			delete(state, name)
		}
	}
}

// graveOf is the key that lists the tombstone of a record which e stored.
func graveOf(e fsm.Entry, stamp protocol.Timestamp, mapName, key string) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(stamp.Millis))
	b = binary.BigEndian.AppendUint64(b, e.Index)
	return string(append(b, 1, byte(len(mapName)))) + mapName + key
}

// plainRecords is the state that a log must lead to, found in the simplest way.
func plainRecords(t *testing.T, log []fsm.Entry) map[string]protocol.Record {
	state, came, done := map[string]protocol.Record{}, map[string]string{}, map[string]bool{}
	oracle := newRig(t, 1) // of what is collected
	for _, e := range log {
		collected := oracle.machine.Horizon().CollectedMillis
		oracle.apply(e)
		if e.Configuration {
			continue
		}
		decoded, err := command.DecodeEntry(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range decoded.Commands {
			if c.Kind == command.KindCollect {
				forget(t, state, came, c)
			}
			if c.Kind != command.KindPut {
				continue
			}
			p, err := command.DecodePut(c)
			if err != nil {
				t.Fatal(err)
			}
			if done[p.Dedup] {
				continue
			}
			done[p.Dedup] = p.Dedup != ""
			if len(p.Map)+len(p.Key)+32 > storage.MaxKeyBytes {
				continue // refused
			}
			name := fmt.Sprintf("%q %q", p.Map, p.Key)
			met, found := state[name]
			if p.Stamped {
				p.Record.Timestamp = decoded.Stamp
				p.Record.Timestamp.Counter += int64(i)
				if p.Overwrite && found && p.Record.Timestamp.Compare(met.Timestamp) <= 0 {
					p.Record.Timestamp.Millis, p.Record.Timestamp.Counter = met.Timestamp.Millis, met.Timestamp.Counter+1
				}
			}
			if !found && !p.Stamped && p.Record.Value != nil && collected > 0 && p.Record.Timestamp.Millis <= collected {
				continue // refused
			}
			if !found || p.Record.Timestamp.Compare(met.Timestamp) > 0 {
				state[name], came[name] = p.Record, graveOf(e, decoded.Stamp, p.Map, p.Key)
			}
		}
	}
	return state
}

func TestRecordsEqualAPlainMap(t *testing.T) {
	rnd := newRand(t)
	for range 10 {
		log := randomLog(t, rnd, 1, 200)
		r := newReplica(t, 1, log, memory.New(memory.Config{}), batchSize(10), cacheBytes(rnd.IntN(2000)))
		for r.step(1 + rnd.IntN(20)) {
			if rnd.IntN(3) == 0 {
				r.flush()
			}
		}
		got := map[string]protocol.Record{}
		for _, name := range modelMaps {
			last := ""
			_, err := r.machine.Scan(name, "", func(key string, rec protocol.Record) bool {
				if len(got) > 0 && last != "" && key <= last {
					t.Errorf("%q after %q", key, last)
				}
				last = key
				got[fmt.Sprintf("%q %q", name, key)] = rec
				one, found, err := r.machine.Get(name, key)
				if err != nil || !found || !cmp.Equal(one, rec) {
					t.Errorf("Get(%q, %q) = %v, %v, %v; Scan shows %v", name, key, one, found, err, rec)
				}
				return true
			})
			r.must(err)
		}
		if diff := cmp.Diff(plainRecords(t, log), got); diff != "" {
			t.Fatalf("records (-want +got):\n%s", diff)
		}
	}
}
