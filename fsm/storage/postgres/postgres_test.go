package postgres_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm/storage/postgres"
	"github.com/quorate/quorate/fsm/storage/postgres/pgtest"
	"github.com/quorate/quorate/protocol"
)

// server is shared by the tests, each of which has a database of its own.
var server *pgtest.Server

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.fuzzworker").Value.String() == "true" {
		os.Exit(m.Run()) // It runs one fuzz target, which needs no server, and is not let end in peace.
	}
	var err error
	server, err = pgtest.Start()
	if err != nil && (!errors.Is(err, pgtest.ErrMissing) || pgtest.Required()) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if server != nil {
		if err := server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// database is an empty one for a test.
func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	if server == nil {
		t.Skip(pgtest.ErrMissing)
	}
	url, err := server.Create(strings.ToLower(t.Name()))
	must(t, err)
	pool, err := postgres.Open(t.Context(), url)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func table(t *testing.T, pool *pgxpool.Pool) *postgres.Table {
	t.Helper()
	table, err := postgres.New(pool, "")
	must(t, err)
	must(t, table.Initialize(t.Context()))
	return table
}

// claimed is a table of cluster c1, and the leader of group 1 in term 1.
func claimed(t *testing.T) (*postgres.Table, postgres.Leader) {
	t.Helper()
	table := table(t, database(t))
	owner := claim(t, table, "c1", "i1")
	return table, postgres.Leader{Owner: owner, Group: 1, Term: 1}
}

// claim claims the table and ends the session.
func claim(t *testing.T, table *postgres.Table, cluster, instance string) postgres.Owner {
	t.Helper()
	owner, session, err := table.Claim(t.Context(), cluster, instance)
	must(t, err)
	must(t, session.Check(t.Context()))
	if _, _, err := table.Claim(t.Context(), "another", "i"); !errors.Is(err, postgres.ErrInUse) {
		t.Errorf("claim during the session: %v, want ErrInUse", err)
	}
	must(t, session.Close(t.Context()))
	return owner
}

func ts(millis int64) protocol.Timestamp {
	return protocol.Timestamp{Millis: millis, Counter: 3, NodeID: "n1"}
}

func row(key, text string, index uint64) postgres.Row {
	rec := protocol.Record{Timestamp: ts(int64(index))}
	if text != "" {
		rec.Value = msgp.AppendString(nil, text)
	}
	return postgres.Row{Map: "m", Key: key, Record: &rec, Index: index}
}

func rows(t *testing.T, table *postgres.Table) map[string]postgres.Row {
	t.Helper()
	found := map[string]postgres.Row{}
	must(t, table.Scan(t.Context(), func(r postgres.Row) error {
		found[r.Map+"/"+r.Key] = r
		return nil
	}))
	return found
}

func textOf(r postgres.Row) string {
	if r.Record == nil || r.Record.IsTombstone() {
		return ""
	}
	text, _, _ := msgp.ReadStringBytes(r.Record.Value)
	return text
}

func TestTableNames(t *testing.T) {
	for _, name := range []string{"service_maps", "_x", "A9", "select"} {
		if err := postgres.ValidTable(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "9a", "a-b", "a.b", `a"b`, "a b", "ä", "a;drop", strings.Repeat("a", 41)} {
		if err := postgres.ValidTable(name); !errors.Is(err, postgres.ErrName) {
			t.Errorf("%q: %v, want ErrName", name, err)
		}
	}
	if _, err := postgres.New(nil, "no-name"); !errors.Is(err, postgres.ErrName) {
		t.Errorf("New: %v, want ErrName", err)
	}
}

func TestInitializeMayBeRepeatedAndKeepsWhatIsThere(t *testing.T) {
	pool := database(t)
	// The table of a server that knows no guards.
	_, err := pool.Exec(t.Context(), `CREATE TABLE "select" (map_name TEXT NOT NULL, key TEXT NOT NULL, value BYTEA NOT NULL,
		expiration_time BIGINT NOT NULL DEFAULT 0, is_backup BOOLEAN NOT NULL DEFAULT false, created_at BIGINT NOT NULL,
		updated_at BIGINT NOT NULL, PRIMARY KEY (map_name, key, is_backup));
		INSERT INTO "select" VALUES ('m', 'k', '\x81a576616c7565c0', 0, true, 1, 1)`)
	must(t, err)
	table, err := postgres.New(pool, "select")
	must(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := table.Initialize(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var n int
	must(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM "select"`).Scan(&n))
	if n != 1 {
		t.Errorf("%d rows after Initialize, want 1", n)
	}
}

func TestRowsReadBackAsTheyWereWritten(t *testing.T) {
	table, leader := claimed(t)
	long := strings.Repeat("x", 20_000)
	full := protocol.Record{Value: []byte{0x81, 0xa1, 'x', 1}, Timestamp: ts(7), TTLMillis: 50}
	set := protocol.OREntry{Records: []protocol.ORRecord{
		{Timestamp: ts(1), Tag: "t1"}, {Value: full.Value, Timestamp: ts(2), Tag: "t2", TTLMillis: 9},
	}, Tombstones: []string{"gone", ""}}
	var want []postgres.Row
	for _, name := range []string{"plain", "nul\x00", "bad\xffutf8", long, "~sha256:x", "ünïcode 🙂", "quo'te\"", "", "b\\x00"} {
		r := postgres.Row{Map: "m" + name, Key: name, Index: 9}
		switch len(want) % 3 {
		case 0:
			r.Record = &full
		case 1:
			r.Set = set
		case 2:
			r.Record, r.Set = &protocol.Record{Timestamp: ts(3)}, protocol.OREntry{Tombstones: []string{"all"}}
		}
		r.Set.Key = name
		want = append(want, r)
	}
	_, err := table.Write(t.Context(), postgres.Batch{Leader: leader, Rows: want})
	must(t, err)
	found := rows(t, table)
	for _, w := range want {
		w.Index = 0
		if diff := cmp.Diff(w, found[w.Map+"/"+w.Key], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("key %.20q (-want +got):\n%s", w.Key, diff)
		}
	}
	if len(found) != len(want) {
		t.Errorf("%d rows, want %d", len(found), len(want))
	}
}

func TestNoRowGoesBackInTime(t *testing.T) {
	table, first := claimed(t)
	second := first
	second.Term = 2
	write := func(l postgres.Leader, rows ...postgres.Row) error {
		_, err := table.Write(t.Context(), postgres.Batch{Leader: l, Rows: rows})
		return err
	}
	must(t, write(first, row("a", "5", 5), row("b", "6", 6)))
	must(t, write(first, row("a", "4", 4)))
	if got := textOf(rows(t, table)["m/a"]); got != "5" {
		t.Errorf("a is %q after an older write, want 5", got)
	}
	position, err := table.Take(t.Context(), second)
	must(t, err)
	if position.Term != 2 {
		t.Errorf("took %+v", position)
	}
	// The old leader has not heard of it, and would bring back what is deleted.
	must(t, write(second, postgres.Row{Map: "m", Key: "b", Gone: true}))
	if err := write(first, row("a", "9", 9), row("b", "6", 6)); !errors.Is(err, postgres.ErrDeposed) {
		t.Errorf("write of a deposed leader: %v, want ErrDeposed", err)
	}
	if _, err := table.Take(t.Context(), first); !errors.Is(err, postgres.ErrDeposed) {
		t.Errorf("a deposed leader takes the group: %v, want ErrDeposed", err)
	}
	found := rows(t, table)
	if _, exists := found["m/b"]; exists || textOf(found["m/a"]) != "5" {
		t.Errorf("rows %v, want a alone", found)
	}
	must(t, write(second, row("a", "10", 10)))
	other := first
	other.Group = 2
	must(t, write(other, row("c", "1", 1)))
	if found := rows(t, table); textOf(found["m/a"]) != "10" || textOf(found["m/c"]) != "1" {
		t.Errorf("rows %v", found)
	}
}

func TestThePositionMovesWithItsBatch(t *testing.T) {
	table, leader := claimed(t)
	for i, step := range []struct {
		batch postgres.Batch
		want  postgres.Position
	}{
		{postgres.Batch{}, postgres.Position{Term: 1, Sequence: 1}},
		{postgres.Batch{Index: 7, Token: 100}, postgres.Position{Term: 1, Index: 7, Sequence: 2, Token: 100}},
		{postgres.Batch{Rows: []postgres.Row{row("a", "8", 8)}}, postgres.Position{Term: 1, Index: 7, Sequence: 3, Token: 100}},
		{postgres.Batch{Index: 5, Token: 50}, postgres.Position{Term: 1, Index: 7, Sequence: 4, Token: 100}},
	} {
		step.batch.Leader = leader
		got, err := table.Write(t.Context(), step.batch)
		must(t, err)
		if got != step.want {
			t.Errorf("step %d: %+v, want %+v", i, got, step.want)
		}
	}
}

func TestADatabaseThatLostTransactionsIsDetected(t *testing.T) {
	table, leader := claimed(t)
	must(t, writeOne(table, leader))
	position, err := table.Take(t.Context(), leader)
	must(t, err)
	// A standby that had not received the last transactions.
	must(t, server.Exec(strings.ToLower(t.Name()), `UPDATE service_maps_groups SET sequence = 1, log_index = 7; DELETE FROM service_maps`))
	_, err = table.Write(t.Context(), postgres.Batch{Leader: leader, After: position.Sequence, Index: 80})
	var back *postgres.BackError
	if !errors.As(err, &back) || back.Found.Index != 7 {
		t.Errorf("write: %v, want a BackError at index 7", err)
	}
	if position, err = table.Take(t.Context(), leader); err != nil || position.Index != 7 {
		t.Errorf("position %+v, %v: the refused write has moved it", position, err)
	}
}

func TestWhatWasRemovedIsPrunedByItsGroup(t *testing.T) {
	table, leader := claimed(t)
	old, young, live := row("old", "", 1), row("young", "", 2), row("live", "x", 3)
	old.RemovedMillis, young.RemovedMillis = 100, 200
	other := leader
	other.Group = 2
	foreign := row("foreign", "", 1)
	foreign.RemovedMillis = 50
	_, err := table.Write(t.Context(), postgres.Batch{Leader: other, Rows: []postgres.Row{foreign}})
	must(t, err)
	_, err = table.Write(t.Context(), postgres.Batch{Leader: leader, Rows: []postgres.Row{old, young, live}, PrunedMillis: 100})
	must(t, err)
	found := rows(t, table)
	if _, exists := found["m/old"]; exists || len(found) != 3 {
		t.Errorf("rows %v, want all but the old one", found)
	}
}

func TestOneBadRowIsNamedAndTheRestIsNotStalled(t *testing.T) {
	pool := database(t)
	table := table(t, pool)
	owner := claim(t, table, "c1", "i1")
	leader := postgres.Leader{Owner: owner, Group: 1, Term: 1}
	_, err := pool.Exec(t.Context(), `ALTER TABLE service_maps ADD CONSTRAINT bad CHECK (key <> 'k5')`)
	must(t, err)
	var batch []postgres.Row
	for i := range 10 {
		batch = append(batch, row(fmt.Sprint("k", i), "v", uint64(i+1)))
	}
	_, err = table.Write(t.Context(), postgres.Batch{Leader: leader, Rows: batch, Index: 10})
	var rejected *postgres.RejectedError
	if !errors.As(err, &rejected) || rejected.Key != "k5" {
		t.Fatalf("write: %v, want k5 rejected", err)
	}
	position, err := table.Write(t.Context(), postgres.Batch{Leader: leader, Rows: append(batch[:5:5], batch[6:]...)})
	must(t, err)
	if position.Index != 0 {
		t.Errorf("the position moved to %d with a row missing", position.Index)
	}
	if n := len(rows(t, table)); n != 9 {
		t.Errorf("%d rows, want 9", n)
	}
}

func TestASecondClusterIsRefused(t *testing.T) {
	table, leader := claimed(t)
	must(t, writeOne(table, leader))
	session, err := table.Join(t.Context())
	must(t, err)
	if _, _, err := table.Claim(t.Context(), "c2", "i2"); !errors.Is(err, postgres.ErrInUse) {
		t.Errorf("claim of a table in use: %v, want ErrInUse", err)
	}
	must(t, session.Check(t.Context()))
	must(t, session.Close(t.Context()))
	owner := claim(t, table, "c1", "i3")
	if owner != leader.Owner {
		t.Errorf("claimed again as %+v, want %+v", owner, leader.Owner)
	}
	_, err = table.Write(t.Context(), postgres.Batch{Leader: leader, Token: 500})
	must(t, err)
	// The cluster is gone; a new one goes on with its rows, above its tokens.
	owner = claim(t, table, "c2", "i2")
	if owner.Epoch != leader.Owner.Epoch+1 || owner.Instance != "i2" || owner.Token != 500 {
		t.Errorf("claimed as %+v", owner)
	}
	if err := writeOne(table, leader); !errors.Is(err, postgres.ErrForeign) {
		t.Errorf("write of the former owner: %v, want ErrForeign", err)
	}
	// Its log begins anew, with lower terms and indexes.
	next := postgres.Leader{Owner: owner, Group: 1, Term: 1}
	_, err = table.Write(t.Context(), postgres.Batch{Leader: next, Rows: []postgres.Row{row("k", "new", 1)}})
	must(t, err)
	if got := textOf(rows(t, table)["m/k"]); got != "new" {
		t.Errorf("k is %q, want what the new owner wrote", got)
	}
}

func writeOne(table *postgres.Table, l postgres.Leader) error {
	_, err := table.Write(context.Background(), postgres.Batch{Leader: l, Rows: []postgres.Row{row("k", "v", 70)}, Index: 70})
	return err
}

func TestAnotherDatabaseIsDetected(t *testing.T) {
	table, leader := claimed(t)
	must(t, writeOne(table, leader))
	must(t, server.Recreate(strings.ToLower(t.Name())))
	wantForeign := func(what string) {
		t.Helper()
		// A connection that broke with the old database says nothing about the new one.
		err := writeOne(table, leader)
		for i := 0; i < 20 && !errors.Is(err, postgres.ErrForeign); i++ {
			err = writeOne(table, leader)
		}
		if !errors.Is(err, postgres.ErrForeign) {
			t.Errorf("write to %s: %v, want ErrForeign", what, err)
		}
	}
	wantForeign("an empty database")
	must(t, table.Initialize(t.Context()))
	wantForeign("an empty table")
	if _, err := table.Owner(t.Context()); !errors.Is(err, postgres.ErrForeign) {
		t.Errorf("owner: %v, want ErrForeign", err)
	}
	must(t, server.Exec(strings.ToLower(t.Name()), table.Adopt(leader.Owner)))
	position, err := table.Take(t.Context(), leader)
	must(t, err)
	if position.Index != 0 {
		t.Errorf("an empty database is at %d", position.Index)
	}
}

func TestConcurrentLeadersOfAGroupLeaveTheRowsOfTheLast(t *testing.T) {
	table, leader := claimed(t)
	var wg sync.WaitGroup
	for term := uint64(1); term <= 6; term++ {
		l := leader
		l.Term = term
		wg.Go(func() {
			for i := uint64(1); i <= 20; {
				_, err := table.Write(context.Background(), postgres.Batch{
					Leader: l, Rows: []postgres.Row{row("k", fmt.Sprintf("%d.%02d", term, i), 100*term+i)}, Index: 100*term + i,
				})
				switch {
				case errors.Is(err, postgres.ErrDeposed):
					return
				case err == nil:
					i++
				case !postgres.Retry(err):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := textOf(rows(t, table)["m/k"]); got != "6.20" {
		t.Errorf("k is %q, want the last leader's last write", got)
	}
}

func TestValuesThatAreNoRecordsAreErrors(t *testing.T) {
	pool := database(t)
	table := table(t, pool)
	for _, value := range []string{`\x`, `\xc0`, `\x80`, `\xdfffffffff`, `\x81a974696d657374616d70c0`, `\x81a77265636f72647391c0`} {
		_, err := pool.Exec(t.Context(), `DELETE FROM service_maps; INSERT INTO service_maps (map_name, key, value, created_at, updated_at) VALUES ('m', 'k', '`+value+`', 1, 1)`)
		must(t, err)
		if err := table.Scan(t.Context(), func(postgres.Row) error { return nil }); err == nil {
			t.Errorf("%s is read as a row", value)
		}
	}
}
