package ws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/partitions/live"
	"github.com/quorate/quorate/partitions/locks"
	"github.com/quorate/quorate/partitions/notice"
	"github.com/quorate/quorate/partitions/topics"
	"github.com/quorate/quorate/protocol"
)

// fakeBackend is a cluster of one group in memory, with a real event hub. The hooks
// replace or delay what it does; they are set before connections are opened.
type fakeBackend struct {
	hub   *live.Hub
	board *notice.Board
	done  chan struct{}

	// onWrite, if set, is asked before each write is applied. An error is returned
	// instead of applying.
	onWrite func(ctx context.Context, ops []partitions.Op) error
	// verdict, if set, judges each operation.
	verdict func(op partitions.Op) partitions.Verdict
	// onSnapshot, if set, runs before the rows are read; afterRead between reading
	// the rows and returning them.
	onSnapshot func(ctx context.Context) error
	afterRead  func()

	// onAcquire and onRelease, if set, run before a lock is asked for and released. An
	// error is returned instead of asking.
	onAcquire func() error
	onRelease func()

	// onBarrier confirms linearizable reads.
	onBarrier func() error

	// wrapSink, if set, stands between the hub and each subscriber.
	wrapSink func(partitions.Sink) partitions.Sink

	mu       sync.Mutex
	index    uint64
	sessions map[*partitions.Session]string
	maps     map[string]map[string]protocol.Record
	machine  *fsm.Machine
	// leaf is where a leaf goes on that was read in part, by one reader at a time.
	leaf    fsm.Leaf
	locks   *locks.Service
	lockers map[*partitions.Session]*locks.Session
	topics  *topics.Service
	// additions counts those to counters without an id.
	additions atomic.Int64
	// stamps orders what tests write from outside.
	stamps  atomic.Int64
	horizon partitions.Horizon
	// horizonErr says that it is not known.
	horizonErr error
	// judged are the numbers of tags that UnknownRemovals was asked about.
	judged []int
	// collected is called after horizon changed.
	collected func()
	writes    [][]partitions.Op
	info      *partitions.MapInfo
	watchers  map[*func()]struct{}
}

func newFakeBackend() *fakeBackend {
	b := &fakeBackend{
		hub: live.NewHub(), board: new(notice.Board), done: make(chan struct{}),
		sessions: map[*partitions.Session]string{}, lockers: map[*partitions.Session]*locks.Session{}, maps: map[string]map[string]protocol.Record{},
		info: &partitions.MapInfo{Version: 1}, watchers: map[*func()]struct{}{},
	}
	b.info.Nodes = []partitions.NodeInfo{{NodeID: "n1", WebSocket: "ws://127.0.0.1:1/ws", Status: "ACTIVE"}}
	b.openMachine()
	b.openLocks()
	b.openTopics()
	for p := range b.info.Owner {
		b.info.Owner[p], b.info.Backups[p] = "n1", []string{}
	}
	return b
}

// run dispatches events until close.
func (b *fakeBackend) run() { b.hub.Run(b.done) }

func (b *fakeBackend) close() {
	close(b.done)
	b.locks.Close()
	b.topics.Close()
}

func (b *fakeBackend) NewSession() *partitions.Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := new(partitions.Session)
	b.sessions[s] = "origin-" + strconv.Itoa(len(b.sessions))
	b.lockers[s] = b.locks.NewSession()
	return s
}

func (b *fakeBackend) Write(ctx context.Context, s *partitions.Session, ops []partitions.Op) ([]partitions.Verdict, error) {
	if b.onWrite != nil {
		if err := b.onWrite(ctx, ops); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", partitions.ErrUnknown, ctx.Err())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes = append(b.writes, slices.Clone(ops))
	verdicts := make([]partitions.Verdict, len(ops))
	b.index++
	changes := &fsm.Changes{Group: 1, Index: b.index}
	for i, op := range ops {
		verdicts[i] = partitions.Verdict{Level: protocol.LevelPersisted}
		if b.verdict != nil {
			verdicts[i] = b.verdict(op)
		}
		if !op.Guard.Holds(b.maps[op.Map][op.Key].Value) {
			verdicts[i] = partitions.ChangedVerdict()
		}
		if !verdicts[i].Refused() {
			b.mergeLocked(changes, op, b.sessions[s])
		}
	}
	b.applyLocked(b.sessions[s], ops, verdicts)
	b.hub.Publish(changes)
	return verdicts, nil
}

func (b *fakeBackend) mergeLocked(changes *fsm.Changes, op partitions.Op, origin string) {
	if op.Add != nil || op.Remove != "" {
		return
	}
	records := b.maps[op.Map]
	if records == nil {
		records = map[string]protocol.Record{}
		b.maps[op.Map] = records
	}
	rec := op.Record
	rec.Value = slices.Clone(rec.Value)
	if rec.Timestamp.IsZero() {
		rec.Timestamp = protocol.Timestamp{Millis: testNow, Counter: int64(b.index), NodeID: "n1"}
	}
	old, ok := records[op.Key]
	if ok && rec.Timestamp.Compare(old.Timestamp) <= 0 {
		return
	}
	records[op.Key] = rec
	changes.List = append(changes.List, fsm.Change{
		Index: b.index, Section: storage.SectionRecords, Map: op.Map, Key: op.Key, Record: rec,
		Existed: ok && !old.IsTombstone(), Old: old.Value, Origin: origin,
	})
}

// put writes from outside any connection.
func (b *fakeBackend) put(mapName, key string, rec protocol.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.index++
	changes := &fsm.Changes{Group: 1, Index: b.index}
	op := partitions.Op{Map: mapName, Key: key, Record: rec}
	b.mergeLocked(changes, op, "")
	b.applyLocked("", []partitions.Op{op}, make([]partitions.Verdict, 1))
	b.hub.Publish(changes)
}

func (b *fakeBackend) Subscribe(_ context.Context, s *partitions.Session, mapName string, want partitions.Interest, sink partitions.Sink) (*partitions.Subscription, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wrapSink != nil {
		sink = b.wrapSink(sink)
	}
	return b.hub.Subscribe(mapName, b.sessions[s], want, sink), nil
}

// settle returns when every change published so far has reached its subscribers.
func (b *fakeBackend) settle() {
	reached := make(chan struct{})
	sub := b.hub.Subscribe("settle", "", live.Interest{}, closer(reached))
	defer sub.Close()
	sub.Release()
	b.mu.Lock()
	b.index++
	b.hub.Publish(&fsm.Changes{Group: 1, Index: b.index, List: []fsm.Change{
		{Index: b.index, Section: storage.SectionRecords, Map: "settle"},
	}})
	b.mu.Unlock()
	<-reached
}

// closer is a sink that closes itself with the first event.
type closer chan struct{}

func (c closer) Event(*partitions.Event, bool) bool { close(c); return false }
func (c closer) Gap()                               {}

func (b *fakeBackend) Answer(ctx context.Context, _ *partitions.Session, ask partitions.Ask) (*partitions.Answer, error) {
	if b.onSnapshot != nil {
		if err := b.onSnapshot(ctx); err != nil {
			return nil, err
		}
	}
	answer, err := b.answer(ask)
	if b.afterRead != nil {
		b.afterRead()
	}
	return answer, err
}

func (b *fakeBackend) Barrier(context.Context, *partitions.Session) error { return b.onBarrier() }

func (b *fakeBackend) answer(ask partitions.Ask) (*partitions.Answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := partitions.NewGathering(ask, testNow)
	records := b.maps[ask.Map]
	for _, key := range slices.Sorted(maps.Keys(records)) {
		if !g.Add(key, records[key]) {
			break
		}
	}
	answer := g.Answer()
	answer.Index[1] = b.index
	return answer, g.Err()
}

func (b *fakeBackend) PartitionMap() *partitions.MapInfo {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.info
}

func (b *fakeBackend) MapChanged(fn func()) (cancel func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watchers[&fn] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, &fn)
	}
}

// setMap replaces the partition map.
func (b *fakeBackend) setMap(info *partitions.MapInfo) {
	b.mu.Lock()
	b.info = info
	var call []func()
	for fn := range b.watchers {
		call = append(call, *fn)
	}
	b.mu.Unlock()
	for _, fn := range call {
		fn()
	}
}

// written lists the operations of all writes so far.
func (b *fakeBackend) written() []partitions.Op {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Concat(b.writes...)
}
