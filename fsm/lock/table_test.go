package lock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/lock"
)

// check holds what is true of every table: nobody waits for what its session holds, all
// gateways of holders and waiters are known, and tokens are below the greatest.
func check(t *testing.T, table *lock.Table, tokens map[string]uint64) {
	t.Helper()
	gateways := map[string]bool{}
	for _, name := range table.Names() {
		l := table.Get(name)
		gateways[l.Holder.Gateway] = true
		if l.Token < tokens[name] || l.Token > table.Fence() {
			t.Fatalf("%s has token %d after %d, the greatest is %d", name, l.Token, tokens[name], table.Fence())
		}
		tokens[name] = l.Token
		for _, w := range l.Waiters {
			gateways[w.Gateway] = true
			if w.Session == l.Holder.Session {
				t.Fatalf("%s: %+v waits for what it holds", name, w)
			}
		}
	}
	for gateway := range table.Gateways() {
		if !gateways[gateway] {
			t.Fatalf("gateway %s has nothing to do with a lock", gateway)
		}
		delete(gateways, gateway)
	}
	if len(gateways) > 0 {
		t.Fatalf("gateways %v are not known", gateways)
	}
}

// copyOf is a table made from what would be stored of another one.
func copyOf(t *testing.T, table *lock.Table) *lock.Table {
	t.Helper()
	again := lock.NewTable()
	for _, name := range table.Names() {
		r := codec.NewReader(lock.Append(nil, table.Get(name)))
		again.Restore(lock.Read(&r, name))
		if err := r.End(); err != nil {
			t.Fatal(err)
		}
	}
	for gateway, beat := range table.Gateways() {
		again.RestoreBeat(gateway, beat)
	}
	again.RestoreFence(table.Fence())
	return again
}

func TestRandomHistoriesKeepTheTableSound(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	table, tokens := lock.NewTable(), map[string]uint64{}
	for step := range uint64(20_000) {
		name := []string{"a", "b", "c"}[rnd.IntN(3)]
		s := lock.Session{Gateway: []string{"g", "h"}[rnd.IntN(2)], Number: rnd.Uint64N(4)}
		req := lock.Request{Session: s, ID: rnd.Uint64N(1000), TTLMillis: rnd.Int64N(3)}
		token := table.Fence() - min(table.Fence(), rnd.Uint64N(4))
		fence := table.Fence()
		switch rnd.IntN(10) {
		case 0:
			table.Expire(name, token, rnd.Uint64N(2))
		case 1:
			table.Renew(name, token, 5)
		case 2:
			table.Cancel(name, req)
		case 3:
			table.End(s)
		case 4:
			table.EndGateway(s.Gateway, table.Beat(s.Gateway)+rnd.Uint64N(2))
		case 5:
			table.Hear(s.Gateway, step+1)
		case 6, 7:
			table.Release(name, token)
		default:
			if o := table.Acquire(name, req, step+1); o.State != table.Status(name, req).State {
				t.Fatalf("%+v and then %+v", o, table.Status(name, req))
			}
		}
		if table.Fence() < fence {
			t.Fatal("the greatest token went back")
		}
		check(t, table, tokens)
		if rnd.IntN(50) == 0 {
			again := copyOf(t, table)
			for _, name := range table.Names() {
				if diff := cmp.Diff(table.Get(name), again.Get(name), cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("%s comes back as another (-was +is):\n%s", name, diff)
				}
			}
			if diff := cmp.Diff(table.Gateways(), again.Gateways()); diff != "" {
				t.Fatalf("gateways (-were +are):\n%s", diff)
			}
			table = again
		}
	}
}

func request(i uint64) lock.Request {
	return lock.Request{Session: lock.Session{Gateway: "g", Number: i}, ID: i}
}

// queueIsServed holds that all who wait get the lock, one after the other.
func queueIsServed(*testing.T) error {
	table := lock.NewTable()
	for i := range uint64(10) {
		table.Acquire("l", request(i), 1)
	}
	for i := range uint64(10) {
		l := table.Get("l")
		if l == nil || l.Holder.ID != i {
			return fmt.Errorf("request %d does not get the lock: %+v", i, l)
		}
		table.Release("l", l.Token)
	}
	return nil
}

// replicasAgree holds that two tables with one history are equal: the end of a session that
// holds many locks gives out tokens in one order.
func replicasAgree(*testing.T) error {
	tables := [2]*lock.Table{lock.NewTable(), lock.NewTable()}
	for _, table := range tables {
		for i := range 20 {
			table.Acquire(fmt.Sprint("l", i), request(1), 1)
			table.Acquire(fmt.Sprint("l", i), request(2), 1)
		}
		table.End(request(1).Session)
	}
	for _, name := range tables[0].Names() {
		if a, b := tables[0].Get(name), tables[1].Get(name); a.Token != b.Token {
			return fmt.Errorf("%s has token %d and %d", name, a.Token, b.Token)
		}
	}
	return nil
}

func TestQueuesAreServedAndReplicasAgree(t *testing.T) {
	for range 20 {
		if err := errors.Join(queueIsServed(t), replicasAgree(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAQueueIsServedInOrderAndHasAnEnd(t *testing.T) {
	table := lock.NewTable()
	table.Acquire("l", request(0), 1)
	for i := range uint64(lock.MaxWaiters) {
		if o := table.Acquire("l", request(i+1), 1); o.State != lock.Waiting {
			t.Fatalf("request %d: %+v", i+1, o)
		}
	}
	if o := table.Acquire("l", request(5000), 1); o.State != lock.Full {
		t.Errorf("one more: %+v", o)
	}
	table.Cancel("l", request(1))
	table.End(request(3).Session)
	var order []uint64
	for l := table.Get("l"); l != nil && len(order) < 3; l = table.Get("l") {
		order = append(order, l.Holder.ID)
		table.Release("l", l.Token)
	}
	if want := []uint64{0, 2, 4}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if changes := table.Drain(); !slices.Contains(changes.Locks, "l") || len(table.Drain().Locks) > 0 {
		t.Errorf("changes %+v", changes.Locks[:1])
	}
}

func TestOneSessionDoesNotFillAQueue(t *testing.T) {
	table := lock.NewTable()
	table.Acquire("l", request(1), 1)
	greedy := lock.Session{Gateway: "n1", Number: 77}
	for i := range uint64(lock.MaxPlaces) {
		if o := table.Acquire("l", lock.Request{Session: greedy, ID: 100 + i}, 1); o.State != lock.Waiting {
			t.Fatalf("place %d: %+v, want it waiting", i, o)
		}
	}
	if o := table.Acquire("l", lock.Request{Session: greedy, ID: 999}, 1); o.State != lock.Full {
		t.Errorf("one place more: %+v, want it refused", o)
	}
	if o := table.Acquire("l", request(2), 1); o.State != lock.Waiting {
		t.Errorf("another session: %+v, want it waiting", o)
	}
}

func TestOneSessionHasABoundedNumberOfLocks(t *testing.T) {
	table := lock.NewTable()
	for i := range lock.MaxLocks {
		if o := table.Acquire(fmt.Sprint(i), request(1), 1); o.State != lock.Granted {
			t.Fatalf("lock %d: %+v, want it granted", i, o)
		}
	}
	if o := table.Acquire("one more", request(1), 1); o.State != lock.Full {
		t.Errorf("one lock more: %+v, want it refused", o)
	}
	if o := table.Acquire("0", request(1), 1); o.State != lock.Granted {
		t.Errorf("a lock that it has: %+v, want it granted", o)
	}
	if table.Get("one more") != nil {
		t.Error("the refused request left a lock behind")
	}
}
