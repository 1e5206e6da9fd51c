package sim

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/quorate/quorate/partitions"
)

// watcher follows one map through one node, as a subscribed client does.
type watcher struct {
	w    *world
	life *life
	sub  *partitions.Subscription

	// mu protects the fields below.
	mu     sync.Mutex
	gap    bool
	view   map[string]string
	newest map[uint32]uint64
}

// Event implements partitions.Sink.
func (s *watcher) Event(e *partitions.Event, _ bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gap {
		return false
	}
	if e.Index < s.newest[e.Group] {
		s.w.problem("%s delivered %d of group %d after %d", s.life.machine.name, e.Index, e.Group, s.newest[e.Group])
	}
	s.newest[e.Group] = e.Index
	if e.Record.IsTombstone() {
		delete(s.view, e.Key)
	} else {
		s.view[e.Key] = decode(e.Record.Value)
	}
	return true
}

// Gap implements partitions.Sink.
func (s *watcher) Gap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gap = true
}

func decode(value []byte) string { return string(value[1:]) }

// watch subscribes to a map on a node; nil if the node cannot serve it now.
func (w *world) watch(l *life, mapName string) *watcher {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s := &watcher{w: w, life: l, view: map[string]string{}, newest: map[uint32]uint64{}}
	sess := l.node.Router().NewSession()
	sub, err := l.node.Router().Subscribe(ctx, sess, mapName, partitions.Interest{}, s)
	if err != nil {
		return nil
	}
	everything, err := partitions.CompileQuery(nil, partitions.QueryOptions{})
	if err != nil {
		panic(err)
	}
	answer, err := l.node.Router().Answer(ctx, sess, partitions.Ask{Map: mapName, Query: everything, Rows: 10_000, Bytes: 1 << 30})
	if err != nil {
		sub.Close()
		return nil
	}
	answer.Cover(sub)
	for _, row := range answer.Rows {
		s.view[row.Key] = decode(row.Record.Value)
	}
	s.sub = sub
	sub.Release()
	return s
}

// watchAll subscribes to the first map on every node that can serve it.
func (w *world) watchAll() []*watcher {
	var all []*watcher
	for _, l := range w.running() {
		if s := w.watch(l, "m0"); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// compare checks what a watcher has seen against the state, once everything is at
// rest, and ends it.
func (s *watcher) compare(want map[string]string) {
	if s.life.dead.Load() {
		return
	}
	s.w.eventually(10*time.Second, "the events of "+s.life.machine.name, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.gap && !maps.Equal(s.view, want) {
			return fmt.Errorf("view of %d records differs from the state's %d: %s", len(s.view), len(want), firstDifference(s.view, want))
		}
		return nil
	})
	s.sub.Close()
}

func firstDifference(have, want map[string]string) string {
	for k, v := range want {
		if have[k] != v {
			return fmt.Sprintf("%s is %q, not %q", k, have[k], v)
		}
	}
	for k, v := range have {
		if _, found := want[k]; !found {
			return fmt.Sprintf("%s is %q and should not exist", k, v)
		}
	}
	return "none"
}
