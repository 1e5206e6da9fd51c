package ws

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/protocol"
)

// TestViewsOfSlowClientsEqualTheMap writes at random while clients fall behind and are
// resynced, and holds their views against a new query.
func TestViewsOfSlowClientsEqualTheMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) { c.Connection.EventCapacity = 64 })
	write := func() {
		key := fmt.Sprint("k", rnd.IntN(40))
		if rnd.IntN(3) == 0 {
			f.set(key, nil)
			return
		}
		f.set(key, object{"n": rnd.IntN(9), "on": rnd.IntN(2) == 0})
	}
	for range 50 {
		write()
	}
	queries := map[string]object{
		"all": {}, "on": {"where": object{"on": true}}, "few": {"sort": object{"n": "asc"}, "limit": 3},
		"some": {"predicate": object{"op": "lt", "attribute": "n", "value": 5}, "sort": object{"n": "desc"}, "limit": 10},
	}
	c := f.dial()
	c.fenced()
	views := map[string]map[string]string{}
	for id, query := range queries {
		c.ask(id, query)
	}
	for len(views) < len(queries) {
		c.follow(f, views)
	}
	for range 400 {
		write()
		if rnd.IntN(60) == 0 {
			f.gap()
			f.onlyConn().queries.kept()
		}
	}
	f.set("k0", object{"n": 1, "on": true}) // the last write, which all of them see
	deadline := time.Now().Add(patience)
	fresh := f.dial()
	for {
		c.follow(f, views)
		if missing := differs(fresh, queries, views); missing == "" {
			return
		} else if time.Now().After(deadline) {
			t.Fatal(missing)
		}
	}
}

// follow reads what the client is told, up to a fence.
func (c *client) follow(f *fixture, views map[string]map[string]string) {
	c.t.Helper()
	f.settled()
	stamp := f.backend.stamps.Add(1)
	f.backend.put("fence", fmt.Sprint(stamp), protocol.Record{Value: []byte{1}, Timestamp: protocol.Timestamp{Millis: testNow, Counter: stamp}})
	for {
		switch m := c.next().(type) {
		case *protocol.QueryResp:
			views[m.QueryID] = map[string]string{}
			for _, row := range m.Results {
				views[m.QueryID][row.Key] = string(row.Value)
			}
			if m.QueryID == "fence" {
				return
			}
		case *protocol.QueryUpdate:
			if m.QueryID == "fence" {
				return
			}
			if m.ChangeType == protocol.ChangeLeave {
				delete(views[m.QueryID], m.Key)
			} else {
				views[m.QueryID][m.Key] = string(m.Value)
			}
		}
	}
}

// differs says in what the views differ from what queries answer.
func differs(c *client, queries map[string]object, views map[string]map[string]string) string {
	c.t.Helper()
	for id, query := range queries {
		c.ask(id, query)
		var resp *protocol.QueryResp
		for resp == nil {
			resp, _ = c.next().(*protocol.QueryResp)
		}
		want := map[string]string{}
		for _, row := range resp.Results {
			want[row.Key] = string(row.Value)
		}
		if !maps.Equal(want, views[id]) {
			return fmt.Sprintf("%s is %v, not %v", id, slices.Sorted(maps.Keys(views[id])), slices.Sorted(maps.Keys(want)))
		}
	}
	return ""
}

// kept has the client count as one that kept up.
func (s *queries) kept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resynced = time.Time{}
}
