package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/postgres"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
)

// Errors of a database, by what becomes of them.
var (
	errConflict = &pgconn.PgError{Code: "40001"}
	errAway     = errors.New("connection refused")
)

func testConfig() Config {
	cfg := DefaultConfig()
	cfg.BatchSize, cfg.Capacity = 4, 20
	return cfg
}

// world is a node with state machines, a table, and a log that every proposal enters at
// once. Tests run it in virtual time.
type world struct {
	t      *testing.T
	table  *fakeTable
	mirror *Mirror
	end    func()

	// mu protects the fields below.
	mu       sync.Mutex
	machines map[uint32]*fsm.Machine
	index    map[uint32]uint64
	term     uint64
	leads    bool
	state    *system.State
	// offer, unless nil, is asked before a proposal is applied.
	offer func() error
}

// newWorld returns a world whose node leads its one group in term 1, and whose table is the
// cluster's and was adopted. Its mirror does not run yet.
func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	w := &world{
		t: t, machines: map[uint32]*fsm.Machine{}, index: map[uint32]uint64{}, term: 1, leads: true,
		state: &system.State{
			Genesis:  &system.Genesis{ClusterID: "c", Groups: 1, ReplicationFactor: 3},
			Database: &system.Database{Instance: "i", Epoch: 1},
		},
	}
	w.table = &fakeTable{owner: postgres.Owner{Cluster: "c", Database: *w.state.Database}, rows: map[fsm.Name]fakeRow{}}
	var err error
	w.mirror, err = New(cfg, Deps{Logger: hclog.NewNullLogger(), Table: w.table, Groups: w, Cluster: w.cluster})
	must(t, err)
	w.open(0)
	w.open(1)
	w.apply(1, command.EncodeAdopt(command.Adopt{Complete: true}))
	return w
}

// open gives a group a state machine without state.
func (w *world) open(group uint32) {
	w.t.Helper()
	if m := w.machines[group]; m != nil {
		must(w.t, m.Close())
	}
	store := memory.New(memory.Config{})
	flusher, err := writebehind.New(writebehind.DefaultConfig(), writebehind.Deps{Logger: hclog.NewNullLogger(), Store: store})
	must(w.t, err)
	w.machines[group], err = fsm.Open(fsm.DefaultConfig(group), fsm.Deps{
		Logger: hclog.NewNullLogger(), Store: store, Flusher: flusher, OnChange: func(c *fsm.Changes) { w.mirror.Changed(c) },
	})
	must(w.t, err)
	w.index[group] = 0
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start runs the mirror until stop, or the end of the test.
func (w *world) start() {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.mirror.Run(ctx)
	}()
	w.end = func() {
		cancel()
		<-ended
	}
}

func (w *world) stop() {
	if w.end != nil {
		w.end()
	}
	for _, m := range w.machines {
		must(w.t, m.Close())
	}
}

func (w *world) cluster() *system.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// lead says whether the node leads, and in which term.
func (w *world) lead(term uint64, leads bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.term, w.leads = term, leads
}

func (w *world) Term(uint32) (term uint64, leads bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.term, w.leads
}

func (w *world) Source(group uint32) (Replica, bool) {
	m := w.machines[group]
	return m, m != nil
}

func (w *world) Propose(group uint32, cmds []raftnode.Command) (raftnode.Proposal, error) {
	w.mu.Lock()
	offer := w.offer
	w.mu.Unlock()
	if offer != nil {
		if err := offer(); err != nil {
			return nil, err
		}
	}
	w.apply(group, cmds...)
	if group == raftnode.SystemGroup {
		w.mu.Lock()
		w.state = w.machines[0].Cluster()
		w.mu.Unlock()
	}
	return settled{}, nil
}

// settled is a proposal that is applied.
type settled struct{}

func (settled) Wait(ctx context.Context) ([]command.Result, error) { return nil, ctx.Err() }

// apply has a group apply one entry, and returns its index.
func (w *world) apply(group uint32, cmds ...command.Raw) uint64 {
	w.mu.Lock()
	w.index[group]++
	index := w.index[group]
	w.mu.Unlock()
	data := command.AppendEntry(nil, protocol.Timestamp{Millis: int64(index), NodeID: "n"}, cmds)
	_, err := w.machines[group].Apply([]fsm.Entry{{Index: index, Term: 1, Data: data}})
	if err != nil {
		w.t.Error(err)
	}
	return index
}

// put writes a key of map m in an entry of its own, and returns the entry's index.
func (w *world) put(key string, value byte) uint64 {
	return w.apply(1, command.EncodePut(command.Put{Map: "m", Key: key, Stamped: true, Record: protocol.Record{Value: []byte{value}}}))
}

// progress asks until the table has come to index.
func (w *world) progress(index uint64) Progress {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour)
	defer cancel()
	for {
		p, err := w.mirror.Progress(ctx, 1, index)
		switch {
		case err == nil && p.Index >= index:
			return p
		case ctx.Err() != nil:
			w.t.Fatalf("the table does not come to index %d: %+v, %v", index, p, err)
		}
		sleep(ctx, time.Millisecond, nil)
	}
}

// holds fails unless the table has exactly these values under the keys of map m.
func (w *world) holds(want map[string]byte) {
	w.t.Helper()
	got := w.table.values()
	for key, value := range want {
		if got[key] != value {
			w.t.Errorf("%s is %d in the table, want %d", key, got[key], value)
		}
	}
	if len(got) != len(want) {
		w.t.Errorf("%d rows in the table, want %d", len(got), len(want))
	}
}

func keyed(n int) string { return fmt.Sprintf("k%02d", n) }

type fakeRow struct {
	term, index uint64
	value       byte
}

// fakeTable has the rules of postgres.Table in memory.
type fakeTable struct {
	// mu protects the fields below.
	mu    sync.Mutex
	owner postgres.Owner
	rows  map[fsm.Name]fakeRow
	found postgres.Position
	// before is what the table holds from before the cluster.
	before []postgres.Row
	// fail, unless nil, is asked about every write before it takes effect; after, unless
	// nil, hides from the writer that it did.
	fail, after func(b *postgres.Batch) error
	// delay, unless nil, is how long a write takes.
	delay func() time.Duration
	// hold, unless nil, keeps every call waiting until it is closed or the context ends.
	hold chan struct{}
	// writes are the batches that were offered, at are their times.
	writes []postgres.Batch
	at     []time.Time
	open   int // sessions
	broken bool
}

func (f *fakeTable) set(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fakeTable) wait(ctx context.Context) error {
	f.mu.Lock()
	hold, delay := f.hold, time.Duration(0)
	if f.delay != nil {
		delay = f.delay()
	}
	f.mu.Unlock()
	sleep(ctx, delay, nil)
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func (f *fakeTable) Name() string                { return "fake" }
func (f *fakeTable) Adopt(postgres.Owner) string { return "ADOPT" }

func (f *fakeTable) Claim(ctx context.Context, cluster, instance string) (postgres.Owner, Session, error) {
	session, err := f.Join(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owner = postgres.Owner{Cluster: cluster, Database: system.Database{Instance: instance, Epoch: f.owner.Epoch + 1, Token: 70}}
	return f.owner, session, err
}

func (f *fakeTable) Join(ctx context.Context) (Session, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	f.broken = false
	return fakeSession{f}, nil
}

func (f *fakeTable) Owner(ctx context.Context) (postgres.Owner, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.owner, ctx.Err()
}

func (f *fakeTable) Scan(ctx context.Context, fn func(postgres.Row) error) error {
	if err := f.wait(ctx); err != nil {
		return err
	}
	for _, row := range f.before {
		if err := fn(row); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeTable) Write(ctx context.Context, b postgres.Batch) (postgres.Position, error) {
	f.set(func() { f.writes, f.at = append(f.writes, b), append(f.at, time.Now()) })
	if err := f.wait(ctx); err != nil {
		return postgres.Position{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		if err := f.fail(&b); err != nil {
			return postgres.Position{}, err
		}
	}
	switch {
	case b.Leader.Owner != f.owner:
		return postgres.Position{}, postgres.ErrForeign
	case b.Leader.Term < f.found.Term:
		return postgres.Position{}, postgres.ErrDeposed
	case f.found.Sequence < b.After:
		return postgres.Position{}, &postgres.BackError{Found: f.found}
	}
	for i := range b.Rows {
		row := &b.Rows[i]
		name, next := fsm.Name{Map: row.Map, Key: row.Key}, fakeRow{term: b.Leader.Term, index: row.Index}
		if row.Record != nil && len(row.Record.Value) > 0 {
			next.value = row.Record.Value[0]
		}
		if old := f.rows[name]; cmp.Or(cmp.Compare(old.term, next.term), cmp.Compare(old.index, next.index)) < 0 {
			f.rows[name] = next
		}
	}
	f.found = postgres.Position{
		Term: b.Leader.Term, Index: max(f.found.Index, b.Index), Sequence: f.found.Sequence + 1, Token: max(f.found.Token, b.Token),
	}
	if f.after != nil {
		if err := f.after(&b); err != nil {
			return postgres.Position{}, err
		}
	}
	return f.found, nil
}

func (f *fakeTable) values() map[string]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := map[string]byte{}
	for name, row := range f.rows {
		found[name.Key] = row.value
	}
	return found
}

func (f *fakeTable) position() postgres.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.found
}

// offered is the number of batches with rows of key.
func (f *fakeTable) offered(key string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.writes {
		if slices.ContainsFunc(f.writes[i].Rows, func(r postgres.Row) bool { return r.Key == key }) {
			n++
		}
	}
	return n
}

// fakeSession is a session on a fakeTable.
type fakeSession struct{ table *fakeTable }

func (s fakeSession) Check(ctx context.Context) error {
	if err := s.table.wait(ctx); err != nil {
		return err
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if s.table.broken {
		return errAway
	}
	return nil
}

func (s fakeSession) Close(context.Context) error {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.table.open--
	return nil
}
