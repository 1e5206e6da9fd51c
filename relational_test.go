package quorate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/postgres"
	"github.com/quorate/quorate/fsm/storage/postgres/pgtest"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// patience bounds every wait of these tests. They run in real time, beside others.
const patience = 2 * time.Minute

// pgWorld is a cluster with a database of its own.
type pgWorld struct {
	t        *testing.T
	server   *pgtest.Server
	database string
	url      string
	network  *memnet.Network
	nodes    []*pgNode
	capacity int
}

// pgNode is a node in memory whose state survives its end.
type pgNode struct {
	world *pgWorld
	name  string
	seeds []string
	disk  *logstore.MemFS
	store *kept
	pool  *pgxpool.Pool
	*quorate.Node
	stop context.CancelFunc
	ran  chan error
}

// kept is a store that outlives the node which closes it.
type kept struct{ storage.Store }

func (kept) Close() error { return nil }

// pgServer is shared by the tests. Who kills it starts it again.
var pgServer struct {
	once   sync.Once
	server *pgtest.Server
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if pgServer.server != nil {
		if err := pgServer.server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// newPGWorld makes an empty database for a test.
func newPGWorld(t *testing.T) *pgWorld {
	t.Helper()
	pgServer.once.Do(func() { pgServer.server, pgServer.err = pgtest.Start() })
	server, err := pgServer.server, pgServer.err
	if errors.Is(err, pgtest.ErrMissing) && !pgtest.Required() {
		t.Skip(err)
	}
	must(t, err)
	w := &pgWorld{t: t, server: server, network: memnet.New(1), database: strings.ToLower(t.Name()), capacity: 10_000}
	t.Cleanup(func() {
		for _, n := range w.nodes {
			n.kill()
		}
	})
	w.url, err = server.Create(w.database)
	must(t, err)
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *pgWorld) add(name string, seeds ...string) *pgNode {
	w.t.Helper()
	n := &pgNode{world: w, name: name, seeds: seeds, disk: logstore.NewMemFS(), store: &kept{memory.New(memory.Config{Durable: true})}}
	w.nodes = append(w.nodes, n)
	n.start()
	return n
}

func (n *pgNode) start() {
	w := n.world
	w.t.Helper()
	cfg := quorate.DefaultNodeConfig(n.name)
	cfg.Mux.ListenAddr, cfg.Mux.Advertise = n.name+":7000", n.name
	cfg.Membership.Seeds = n.seeds
	cfg.Mirror.Interval, cfg.Mirror.Capacity, cfg.Mirror.RetryLast = 50*time.Millisecond, w.capacity, 200*time.Millisecond
	var err error
	n.pool, err = postgres.Open(context.Background(), w.url)
	must(w.t, err)
	table, err := postgres.New(n.pool, "")
	must(w.t, err)
	// Without the database the node starts too; see Server.
	_ = table.Initialize(context.Background())
	n.Node, err = quorate.OpenNode(cfg, quorate.NodeDeps{
		Logger: hclog.NewNullLogger(), Network: w.network.Host(n.name), LogFS: n.disk, Store: n.store, Table: table,
		Physical: func() int64 { return time.Now().UnixMilli() },
	})
	must(w.t, err)
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	ran, node := make(chan error, 1), n.Node
	n.ran = ran
	go func() { ran <- node.Run(ctx) }()
}

// kill ends a node without a drain. Calling it again does nothing.
func (n *pgNode) kill() {
	if n.Node == nil {
		return
	}
	n.stop()
	if err := <-n.ran; err != nil {
		n.world.t.Errorf("%s ended: %v", n.name, err)
	}
	_ = n.Close(context.Background()) // what it leaves unwritten is in the log
	n.pool.Close()
	n.Node = nil
}

// eventually waits for a condition.
func (w *pgWorld) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func (w *pgWorld) ready() {
	w.t.Helper()
	w.eventually("every node is ready", func() bool {
		return !slices.ContainsFunc(w.nodes, func(n *pgNode) bool { return n.Node != nil && !n.CaughtUp() })
	})
}

func number(n int) msgp.Raw { return msgp.AppendInt(nil, n) }

func (n *pgNode) put(ctx context.Context, key string, value int, level protocol.WriteConcern) (partitions.Verdict, error) {
	op := partitions.Op{Map: "m", Key: key, Level: level, Record: protocol.Record{Value: number(value)}}
	verdicts, err := n.Router().Write(ctx, n.Router().NewSession(), []partitions.Op{op})
	if err != nil {
		return partitions.Verdict{}, err
	}
	return verdicts[0], nil
}

// mustPut writes, again and again while the cluster cannot tell the outcome.
func (n *pgNode) mustPut(key string, value int, level protocol.WriteConcern) partitions.Verdict {
	n.world.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		v, err := n.put(ctx, key, value, level)
		if err == nil {
			return v
		}
		if ctx.Err() != nil {
			n.world.t.Fatalf("put %s: %v", key, err)
		}
	}
}

// table are the numbers in the database, by key.
func (w *pgWorld) table() (map[string]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pool, err := postgres.Open(ctx, w.url)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	table, err := postgres.New(pool, "")
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	err = table.Scan(ctx, func(r postgres.Row) error {
		if r.Record != nil && !r.Record.IsTombstone() {
			n, _, err := msgp.ReadIntBytes(r.Record.Value)
			found[r.Key] = n
			return err
		}
		return nil
	})
	return found, err
}

func (w *pgWorld) awaitTable(what string, ok func(map[string]int) bool) {
	w.t.Helper()
	w.eventually(what, func() bool {
		found, err := w.table()
		return err == nil && ok(found)
	})
}

func TestPersistedMeansThatTheDatabaseHasIt(t *testing.T) {
	w := newPGWorld(t)
	n := w.add("n1")
	w.ready()
	if v := n.mustPut("a", 1, protocol.LevelPersisted); v.Level != protocol.LevelPersisted {
		t.Errorf("verdict %+v", v)
	}
	if found, err := w.table(); err != nil || found["a"] != 1 {
		t.Errorf("table %v, %v", found, err)
	}
	for _, level := range []protocol.WriteConcern{protocol.LevelDefault, protocol.LevelApplied, protocol.LevelReplicated} {
		if v := n.mustPut("b", 2, level); v.Level != protocol.LevelReplicated {
			t.Errorf("asked for %q: %+v", level, v)
		}
	}
	// A write that loses its merge waits for what it lost to.
	op := partitions.Op{Map: "m", Key: "a", Level: protocol.LevelPersisted, Record: protocol.Record{
		Value: number(0), Timestamp: protocol.Timestamp{Millis: 1, NodeID: "x"},
	}}
	verdicts, err := n.Router().Write(t.Context(), n.Router().NewSession(), []partitions.Op{op})
	must(t, err)
	if verdicts[0].Level != protocol.LevelPersisted {
		t.Errorf("an old write: %+v", verdicts[0])
	}
}

func TestAnOutageStopsNothingBelowTheCapacityAndLosesNothing(t *testing.T) {
	w := newPGWorld(t)
	w.capacity = 60
	n := w.add("n1")
	w.ready()
	n.mustPut("before", 1, protocol.LevelPersisted)
	must(t, w.server.Kill())
	persisted := make(chan partitions.Verdict, 1)
	go func() { persisted <- n.mustPut("waits", 7, protocol.LevelPersisted) }()
	for i := range 40 {
		if v := n.mustPut(fmt.Sprint("k", i), i, protocol.LevelReplicated); v.Level != protocol.LevelReplicated {
			t.Errorf("during the outage: %+v", v)
		}
	}
	// More than the capacity is not taken; what is refused was not applied.
	taken := 40
	for ; taken <= 200; taken++ {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := n.put(ctx, fmt.Sprint("k", taken), taken, protocol.LevelReplicated)
		cancel()
		if err != nil {
			break
		}
	}
	if taken > 70 {
		t.Errorf("%d keys wait for the database, though it is full at %d", taken, w.capacity)
	}
	select {
	case v := <-persisted:
		t.Errorf("acknowledged %+v without a database", v)
	default:
	}
	must(t, w.server.Resume())
	if v := <-persisted; v.Level != protocol.LevelPersisted {
		t.Errorf("after the outage: %+v", v)
	}
	w.awaitTable("every write is in the table", func(found map[string]int) bool {
		for i := range taken {
			if found[fmt.Sprint("k", i)] != i {
				return false
			}
		}
		return found["waits"] == 7 && found["before"] == 1
	})
	// A node that restarts without a database serves, and still counts what waits.
	must(t, w.server.Kill())
	n.mustPut("unwritten", 1, protocol.LevelReplicated)
	n.kill()
	n.start()
	w.ready()
	n.mustPut("after", 1, protocol.LevelReplicated)
	w.eventually("what waits is counted", func() bool { return n.Status().DatabasePending > 0 })
	must(t, w.server.Resume())
	w.awaitTable("the rest is in the table", func(found map[string]int) bool { return found["unwritten"] == 1 && found["after"] == 1 })
}

func TestNoRowGoesBackWhenLeadersDie(t *testing.T) {
	w := newPGWorld(t)
	for _, name := range []string{"n1", "n2", "n3"} {
		w.add(name, "n1:7000", "n2:7000", "n3:7000")
	}
	w.ready()
	const keys = 12
	var wg sync.WaitGroup
	var acked [keys]atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.RWMutex // held by who uses nodes; the killer has it alone
	for k := range keys {
		wg.Go(func() {
			for v := 1; ctx.Err() == nil; {
				running.RLock()
				n := w.nodes[(v+k)%len(w.nodes)]
				if n.Node == nil {
					n = w.nodes[(v+k+1)%len(w.nodes)]
				}
				try, end := context.WithTimeout(ctx, time.Second)
				verdict, err := n.put(try, fmt.Sprint("k", k), v, protocol.LevelPersisted)
				end()
				running.RUnlock()
				if err == nil && verdict.Level == protocol.LevelPersisted {
					acked[k].Store(int64(v))
					v++
				}
			}
		})
	}
	seen := map[string]int{}
	look := func() {
		t.Helper()
		var floor [keys]int64
		for k := range keys {
			floor[k] = acked[k].Load()
		}
		found, err := w.table()
		must(t, err)
		for k := range keys {
			key := fmt.Sprint("k", k)
			if found[key] < seen[key] || int64(found[key]) < floor[k] {
				t.Errorf("%s went from %d to %d, acknowledged %d", key, seen[key], found[key], floor[k])
			}
			seen[key] = found[key]
		}
	}
	progressed := func(by int) {
		t.Helper()
		var from [keys]int64
		for k := range keys {
			from[k] = acked[k].Load()
		}
		w.eventually("every key is written on", func() bool {
			look()
			for k := range keys {
				if acked[k].Load() < from[k]+int64(by) {
					return false
				}
			}
			return true
		})
	}
	progressed(3)
	for range 3 {
		victim := w.leaderOf("k0")
		running.Lock()
		victim.kill()
		running.Unlock()
		progressed(2)
		running.Lock()
		victim.start()
		running.Unlock()
		progressed(2)
	}
	cancel()
	wg.Wait()
	look()
}
