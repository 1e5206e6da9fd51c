package quorate_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm/storage/postgres"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/protocol"
)

// leaderOf is the node that leads the group of a key.
func (w *pgWorld) leaderOf(key string) (leader *pgNode) {
	w.t.Helper()
	w.eventually("the group has a leader", func() bool {
		for _, n := range w.nodes {
			if g, ok := n.Host().Group(placement.GroupOf(key, n.Agent().State().Genesis.Groups)); ok && g.IsLeader() {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

func TestAFailoverToAnEmptyDatabaseIsDetectedAndMended(t *testing.T) {
	w := newPGWorld(t)
	n := w.add("n1")
	w.ready()
	for i := range 50 {
		n.mustPut(fmt.Sprint("k", i), i, protocol.LevelReplicated)
	}
	n.mustPut("last", 1, protocol.LevelPersisted)
	state := n.Agent().State()
	must(t, w.server.Recreate(w.database))
	waits := make(chan partitions.Verdict, 1)
	go func() { waits <- n.mustPut("waits", 2, protocol.LevelPersisted) }()
	n.mustPut("goes on", 3, protocol.LevelReplicated)
	pool, err := postgres.Open(t.Context(), w.url)
	must(t, err)
	defer pool.Close()
	table, err := postgres.New(pool, "")
	must(t, err)
	must(t, table.Initialize(t.Context()))
	n.mustPut("goes on", 4, protocol.LevelReplicated)
	if found, err := w.table(); err != nil || len(found) != 0 {
		t.Errorf("rows in a database that is not the cluster's: %v, %v", found, err)
	}
	select {
	case v := <-waits:
		t.Errorf("acknowledged %+v without the cluster's database", v)
	default:
	}
	// The operator says that it is the cluster's from now on.
	must(t, w.server.Exec(w.database, table.Adopt(postgres.Owner{Cluster: state.Genesis.ClusterID, Database: *state.Database})))
	w.awaitTable("the database has everything", func(found map[string]int) bool {
		return len(found) == 53 && found["k49"] == 49 && found["waits"] == 2 && found["goes on"] == 4
	})
	<-waits
}

func TestANewClusterStartsWithTheRowsOfTheTable(t *testing.T) {
	w := newPGWorld(t)
	old := w.add("n1")
	w.ready()
	for i := range 300 {
		old.mustPut(fmt.Sprint("k", i), i, protocol.LevelReplicated)
	}
	add := protocol.ORRecord{Value: number(5), Timestamp: protocol.Timestamp{Millis: 5, NodeID: "x"}, Tag: "t1"}
	gone := protocol.ORRecord{Value: number(6), Timestamp: protocol.Timestamp{Millis: 6, NodeID: "x"}, Tag: "t2"}
	ops := []partitions.Op{
		{Map: "s", Key: "set", Add: &add}, {Map: "s", Key: "set", Add: &gone}, {Map: "s", Key: "set", Remove: "t2"},
		{Map: "m", Key: "k7", Record: protocol.Record{}, Level: protocol.LevelPersisted},
	}
	for _, op := range ops {
		op.Level = protocol.LevelPersisted
		_, err := old.Router().Write(t.Context(), old.Router().NewSession(), []partitions.Op{op})
		must(t, err)
	}
	// While it lives, no other cluster gets the table.
	second := w.add("m1")
	old.mustPut("still", 1, protocol.LevelPersisted)
	if second.CaughtUp() {
		t.Error("a second cluster serves on the table of a first one")
	}
	// What the table did not have yet would be gone with the cluster.
	w.awaitTable("the table has everything", func(found map[string]int) bool { return len(found) == 300 })
	old.kill()
	w.eventually("the new cluster is ready", func() bool { return second.CaughtUp() })
	session := second.Router().NewSession()
	for i := range 300 {
		rec, found := second.get(fmt.Sprint("k", i))
		if i == 7 {
			if !found || !rec.IsTombstone() {
				t.Errorf("what was deleted: %v, %v", rec, found)
			}
			continue
		}
		if n, _, err := msgp.ReadIntBytes(rec.Value); !found || n != i || err != nil {
			t.Fatalf("k%d: %v, %v", i, rec, found)
		}
	}
	sets, err := second.Router().Sets(t.Context(), session, "s", []string{"set"}, 1<<20)
	must(t, err)
	if len(sets) != 1 || len(sets[0].Records) != 1 || sets[0].Records[0].Tag != "t1" || !slices.Equal(sets[0].Tombstones, []string{"t2"}) {
		t.Errorf("sets %+v", sets)
	}
	second.mustPut("k1", 1000, protocol.LevelPersisted)
	if found, err := w.table(); err != nil || found["k1"] != 1000 || found["k2"] != 2 {
		t.Errorf("the new cluster writes on: %v, %v", found["k1"], err)
	}
	// Tokens of locks are above all that the first cluster can have given.
	g, _ := second.Host().Group(1)
	if fence := g.Machine().(interface{ Fence() uint64 }).Fence(); fence < 1<<20 {
		t.Errorf("tokens start at %d", fence)
	}
	// The first cluster comes back, and is not let in.
	old.start()
	old.mustPut("k2", 2000, protocol.LevelReplicated)
	second.mustPut("k3", 3000, protocol.LevelPersisted)
	if found, err := w.table(); err != nil || found["k2"] != 2 {
		t.Errorf("the former owner wrote: k2 is %d, %v", found["k2"], err)
	}
}

func (n *pgNode) get(key string) (rec protocol.Record, found bool) {
	n.world.t.Helper()
	g, held := n.Host().Group(placement.GroupOf(key, n.Agent().State().Genesis.Groups))
	if !held {
		n.world.t.Fatalf("%s does not hold the group of %s", n.name, key)
	}
	rec, found, err := g.Machine().(interface {
		Get(mapName, key string) (protocol.Record, bool, error)
	}).Get("m", key)
	must(n.world.t, err)
	return rec, found
}

// A database that is slow and refuses transactions at random is no failure.
func TestSlownessAndConflictsOnlyTakeTime(t *testing.T) {
	w := newPGWorld(t)
	n := w.add("n1")
	w.ready()
	must(t, w.server.Exec(w.database, `
		CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_sleep(0.05);
			IF random() < 0.3 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF;
			IF random() < 0.1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER trouble AFTER INSERT OR UPDATE ON service_maps FOR EACH STATEMENT EXECUTE FUNCTION trouble()`))
	for i := range 200 {
		n.mustPut(fmt.Sprint("k", i%50), i, protocol.LevelReplicated)
	}
	if v := n.mustPut("last", 1, protocol.LevelPersisted); v.Level != protocol.LevelPersisted {
		t.Errorf("verdict %+v", v)
	}
	w.awaitTable("every write is in the table", func(found map[string]int) bool {
		for i := 150; i < 200; i++ {
			if found[fmt.Sprint("k", i%50)] != i {
				return false
			}
		}
		return found["last"] == 1
	})
}

func TestARowThatIsRefusedStallsNoOther(t *testing.T) {
	w := newPGWorld(t)
	n := w.add("n1")
	w.ready()
	must(t, w.server.Exec(w.database, `ALTER TABLE service_maps ADD CONSTRAINT bad CHECK (key <> 'bad')`))
	if v := n.mustPut("bad", 1, protocol.LevelPersisted); v.Level != protocol.LevelReplicated {
		t.Errorf("a row that is refused: %+v", v)
	}
	for i := range 30 {
		if v := n.mustPut(fmt.Sprint("k", i), i, protocol.LevelPersisted); v.Level != protocol.LevelPersisted {
			t.Errorf("another row: %+v", v)
		}
	}
	must(t, w.server.Exec(w.database, `ALTER TABLE service_maps DROP CONSTRAINT bad`))
	// The next leader finds it again, and so does its next change.
	n.kill()
	n.start()
	w.awaitTable("the refused row is there", func(found map[string]int) bool { return found["bad"] == 1 })
	if v := n.mustPut("bad", 2, protocol.LevelPersisted); v.Level != protocol.LevelPersisted {
		t.Errorf("once it is taken: %+v", v)
	}
}

func TestKeysThatPostgreSQLDoesNotHoldAreWritten(t *testing.T) {
	w := newPGWorld(t)
	n := w.add("n1")
	w.ready()
	keys := []string{"nul\x00byte", strings.Repeat("long", 4000), string(binary.BigEndian.AppendUint64(nil, 1<<63))}
	for i, key := range keys {
		if v := n.mustPut(key, i, protocol.LevelPersisted); v.Level != protocol.LevelPersisted {
			t.Errorf("%.20q: %+v", key, v)
		}
	}
	found, err := w.table()
	must(t, err)
	for i, key := range keys {
		if got, exists := found[key]; !exists || got != i {
			t.Errorf("%.20q is %d, %v", key, got, exists)
		}
	}
}
