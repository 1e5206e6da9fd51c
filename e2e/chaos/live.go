package chaos

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/e2e/chaos/check"
	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// live writes some keys while a client on each node follows all of them.
type live struct {
	*load
	mapName  string
	watchers []*watcher
}

func newLive(l *load) workload { return &live{load: l, mapName: l.mapCalled("map", false)} }

func (w *live) start(busy, watching context.Context) {
	for _, n := range w.round.cluster.Nodes() {
		v := &watcher{mapName: w.mapName, caller: w.caller(n), node: n.Name}
		v.caller.push = v.take
		w.watchers = append(w.watchers, v)
		w.round.watching.Go(func() { v.run(watching) })
	}
	follower := &watcher{mapName: w.mapName, caller: w.caller(nil), node: check.AnyNode}
	w.watchers = append(w.watchers, follower)
	w.round.watching.Go(func() { w.follow(watching, follower) })
	w.each(busy, 3, func(ctx context.Context, c *caller) {
		op := c.begin(check.Put, w.called(fmt.Sprint("k", c.rng.IntN(8))), c.value())
		write := harness.Put("", w.mapName, op.Key, op.Value, protocol.Timestamp{})
		if c.rng.IntN(8) == 0 {
			op.Value, write = "", harness.Remove("", w.mapName, op.Key, protocol.Timestamp{})
		}
		c.submit(ctx, &op, write)
		c.end(op)
	})
}

// quiet compares what each watcher has put together with a new query, on its node if it is
// bound to one.
func (w *live) quiet(ctx context.Context) error {
	for _, v := range w.watchers {
		c := w.caller(v.caller.bound)
		err := until(ctx, settleTime, func() error {
			op, ok := c.read(ctx, check.Local, w.mapName)
			if !ok {
				return fmt.Errorf("%s does not answer", v.node)
			}
			return v.compare(op.Rows)
		})
		c.hangUp()
		if err != nil {
			w.round.problem("live: %s: %v", v.node, err)
		}
	}
	return nil
}

// follow follows the map over the Go client, which begins again by itself, maybe on a node
// that is behind: each snapshot begins a stream of its own.
func (w *live) follow(ctx context.Context, v *watcher) {
	api, err := client.Open(ctx, client.Config{Seeds: v.caller.seeds(), ClientID: v.caller.name})
	if err != nil {
		return // watching has ended
	}
	defer api.Close()
	stream, err := api.Map(w.mapName).Follow(ctx, client.Query{})
	for ctx.Err() == nil && err != nil {
		v.caller.rest(ctx, time.Second)
		stream, err = api.Map(w.mapName).Follow(ctx, client.Query{})
	}
	if err != nil {
		return
	}
	defer stream.Close()
	for change, err := range stream.All(ctx) {
		switch {
		case err == nil:
			v.change(change)
		case ctx.Err() == nil:
			w.round.problem("live: the Go client's stream ended: %v", err)
		}
	}
}

func (w *live) judge(ops []check.Op) []string { return check.Live(ops) }

// watcher follows a map on one node, over new connections when it must.
type watcher struct {
	mapName string
	caller  *caller
	node    string

	// mu protects view, what the watcher shows at the moment: nil without a query. Updates
	// that come before the answer to the query is looked at wait in early.
	mu    sync.Mutex
	view  map[string]string
	early []*protocol.QueryUpdate
}

func (v *watcher) run(ctx context.Context) {
	defer v.caller.hangUp()
	for ctx.Err() == nil {
		if !v.caller.connect(ctx) {
			continue
		}
		if !v.subscribe(ctx) {
			v.caller.hangUp()
			continue
		}
		v.caller.stay(ctx)
		v.mu.Lock()
		v.view = nil
		v.mu.Unlock()
	}
}

// subscribe begins a new view.
func (v *watcher) subscribe(ctx context.Context) bool {
	v.mu.Lock()
	v.early, v.view = nil, nil
	v.mu.Unlock()
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	rows, err := v.caller.conn.query(asking, "live", v.mapName, "", true)
	if err != nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.view = map[string]string{}
	for key, value := range rows {
		v.showLocked(key, value)
	}
	for _, u := range v.early {
		v.updateLocked(u)
	}
	v.early = nil
	return true
}

// take is shown what comes over the connection.
func (v *watcher) take(m protocol.Message) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch m := m.(type) {
	case *protocol.QueryUpdate:
		if v.view == nil {
			v.early = append(v.early, m)
			return
		}
		v.updateLocked(m)
	case *protocol.QueryResp: // the present state, for a watcher that fell behind
		maps.DeleteFunc(v.view, func(string, string) bool { return true })
		for _, r := range m.Results {
			v.showLocked(r.Key, harness.TextOf(r.Value))
		}
	}
}

// change is shown what comes over the Go client.
func (v *watcher) change(c client.Change) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch c.Type {
	case client.Snapshot:
		v.caller.session++
		v.view = map[string]string{}
		for _, r := range c.Records {
			v.showLocked(r.Key, text(r.Value))
		}
	case client.Leave:
		v.showLocked(c.Key, "")
	default:
		v.showLocked(c.Key, text(c.Value))
	}
}

func (v *watcher) updateLocked(u *protocol.QueryUpdate) {
	if u.ChangeType == protocol.ChangeLeave {
		v.showLocked(u.Key, "")
		return
	}
	v.showLocked(u.Key, harness.TextOf(u.Value))
}

// showLocked changes the view. Its operations count for no progress: they are of others.
func (v *watcher) showLocked(key, value string) {
	if value == "" {
		delete(v.view, key)
	} else {
		v.view[key] = value
	}
	op := v.caller.begin(check.Update, key, value)
	op.Outcome, op.Node, op.Return, op.Session = check.OK, v.node, op.Call, v.caller.session
	v.caller.load.history.Add(op)
}

// compare says how the view differs from rows.
func (v *watcher) compare(rows map[string]string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.view == nil {
		return fmt.Errorf("its live query has no answer")
	}
	for key, value := range rows {
		if v.view[key] != value {
			return fmt.Errorf("its live query shows %q for %s, a new one %q", v.view[key], key, value)
		}
	}
	for key, value := range v.view {
		if _, there := rows[key]; !there {
			return fmt.Errorf("its live query shows %q for %s, a new one nothing", value, key)
		}
	}
	return nil
}
