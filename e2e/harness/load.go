package harness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/e2e/model"
	"github.com/quorate/quorate/protocol"
)

// LoadConfig says how a Load writes. Zero fields take the defaults named.
type LoadConfig struct {
	Seed int64
	// Writers is the number of clients, 4 by default.
	Writers int
	// Keys is the number of keys that all clients share, 200 by default, over Maps
	// maps, 2 by default.
	Keys, Maps int
	// Prefix begins the names of the maps; empty by default.
	Prefix string
	// Pause is the longest wait between two batches of a client, 10 ms by default.
	Pause time.Duration
	// Nodes are where clients connect, at random; all nodes by default.
	Nodes []*Node
	// Levels are the levels asked for, at random; all of them by default.
	Levels []protocol.WriteConcern
}

// Load is clients that write at random until Stop. A client sends a batch again,
// unchanged, until it knows what became of it, over new connections when it must.
type Load struct {
	History *model.History
	cfg     LoadConfig
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	acked   atomic.Int64
}

// StartLoad starts writing to c.
func StartLoad(c *Cluster, cfg LoadConfig) *Load {
	cfg.Writers = orDefault(cfg.Writers, 4)
	cfg.Keys, cfg.Maps = orDefault(cfg.Keys, 200), orDefault(cfg.Maps, 2)
	cfg.Pause = orDefault(cfg.Pause, 10*time.Millisecond)
	if cfg.Nodes == nil {
		cfg.Nodes = c.Nodes()
	}
	if cfg.Levels == nil {
		cfg.Levels = []protocol.WriteConcern{
			protocol.LevelDefault, protocol.LevelFireAndForget, protocol.LevelMemory,
			protocol.LevelApplied, protocol.LevelReplicated, protocol.LevelPersisted,
		}
	}
	ceiling, _ := protocol.ParseWriteConcern(c.Level())
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{History: model.NewHistory(ceiling), cfg: cfg, cancel: cancel}
	c.t.Cleanup(l.Stop)
	for i := range cfg.Writers {
		w := &writer{
			load: l, name: fmt.Sprintf("w%d", i+1),
			rng: rand.New(rand.NewPCG(uint64(cfg.Seed), uint64(i))),
		}
		l.wg.Go(func() { w.run(ctx) })
	}
	return l
}

func orDefault[T int | time.Duration](v, fallback T) T {
	if v == 0 {
		return fallback
	}
	return v
}

// Stop ends the writers and waits for them. It may be called again.
func (l *Load) Stop() {
	l.cancel()
	l.wg.Wait()
}

// Acknowledged counts the operations acknowledged so far.
func (l *Load) Acknowledged() int { return int(l.acked.Load()) }

// AwaitProgress waits for n more acknowledgements and returns how long it took.
func (l *Load) AwaitProgress(t TB, n int, timeout time.Duration) time.Duration {
	t.Helper()
	goal := l.Acknowledged() + n
	return Eventually(t, timeout, "acknowledgements", func() error {
		if now := l.Acknowledged(); now < goal {
			return fmt.Errorf("%d are missing", goal-now)
		}
		return nil
	})
}

// MapNames are the maps that are written.
func (l *Load) MapNames() []string {
	var names []string
	for i := range l.cfg.Maps {
		names = append(names, fmt.Sprintf("%smap%d", l.cfg.Prefix, i))
	}
	return names
}

// writer is one client of a Load.
type writer struct {
	load   *Load
	name   string
	rng    *rand.Rand
	client *Client
	nextID int
	clock  protocol.Timestamp
}

func (w *writer) run(ctx context.Context) {
	defer w.hangUp()
	for ctx.Err() == nil {
		batch, writes := w.batch()
		for ctx.Err() == nil && !w.deliver(ctx, batch, writes) {
			w.hangUp()
			w.pause(ctx, 100*time.Millisecond)
		}
		w.pause(ctx, time.Duration(w.rng.Int64N(int64(w.load.cfg.Pause))))
		if w.rng.IntN(50) == 0 {
			w.hangUp() // meets another node
		}
	}
}

// batch makes a batch of new operations.
func (w *writer) batch() (*protocol.OpBatch, []model.Write) {
	batch := &protocol.OpBatch{}
	var writes []model.Write
	for range 1 + w.rng.IntN(8) {
		m := w.write()
		writes = append(writes, m)
		op := Put(m.ID, m.Map, m.Key, m.Value, m.Timestamp)
		if m.Value == "" {
			op = Remove(m.ID, m.Map, m.Key, m.Timestamp)
		}
		op.WriteConcern = m.Level
		batch.Ops = append(batch.Ops, op)
	}
	return batch, writes
}

func (w *writer) write() model.Write {
	cfg := &w.load.cfg
	w.nextID++
	now := protocol.Timestamp{Millis: time.Now().UnixMilli(), NodeID: w.name}
	if now.Millis <= w.clock.Millis {
		now.Millis, now.Counter = w.clock.Millis, w.clock.Counter+1
	}
	w.clock = now
	m := model.Write{
		Client: w.name, ID: fmt.Sprint(w.nextID),
		Map: fmt.Sprintf("%smap%d", cfg.Prefix, w.rng.IntN(cfg.Maps)), Key: fmt.Sprintf("key%d", w.rng.IntN(cfg.Keys)),
		Timestamp: now, Level: cfg.Levels[w.rng.IntN(len(cfg.Levels))],
	}
	if w.rng.IntN(10) > 0 {
		m.Value = fmt.Sprintf("%s/%d", w.name, w.nextID)
	}
	return m
}

// deliver sends a batch once and reports whether everything about it is known.
func (w *writer) deliver(ctx context.Context, batch *protocol.OpBatch, writes []model.Write) bool {
	if !w.connect(ctx) {
		return false
	}
	for _, m := range writes {
		w.load.History.Sent(m)
	}
	result := w.client.Write(ctx, batch)
	known := true
	for _, m := range writes {
		o := result[m.ID]
		w.load.History.Resolved(m.Client, m.ID, o)
		switch {
		case m.Level == protocol.LevelFireAndForget:
		case o.Kind == model.Accepted:
			w.load.acked.Add(1)
		case o.Kind != model.Refused:
			known = false
		}
	}
	return known
}

func (w *writer) connect(ctx context.Context) bool {
	if w.client != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	n := w.load.cfg.Nodes[w.rng.IntN(len(w.load.cfg.Nodes))]
	c, err := n.DialAs(ctx, w.name, w.name)
	if err != nil {
		return false
	}
	w.client = c
	return true
}

// hangUp ends the connection and keeps what the client found wrong.
func (w *writer) hangUp() {
	if w.client == nil {
		return
	}
	w.client.Close()
	for _, p := range w.client.Problems() {
		w.load.History.Problem("%s: %s", w.name, p)
	}
	w.client = nil
}

// pause spaces requests out; it waits for nothing.
func (w *writer) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
