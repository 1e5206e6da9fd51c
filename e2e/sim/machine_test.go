package sim

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/raftnode/logstore"
)

// machine is one simulated computer. What survives the death of its node: disk and
// clock.
type machine struct {
	w     *world
	name  string
	fs    *logstore.MemFS
	store *memory.Store
	// skew is added to the true time, in milliseconds.
	skew atomic.Int64
	// cut counts up when the machine is cut off from all others and when that ends;
	// odd while it is.
	cut atomic.Int64
	// broken is set when a fault of the disk was injected into this life: the node may
	// give up.
	broken atomic.Bool
	life   atomic.Pointer[life]
}

// life is one run of a node.
type life struct {
	machine *machine
	node    *quorate.Node
	// dead is set when the machine loses power: nothing reaches the disk from then on,
	// and no client hears from the node.
	dead   atomic.Bool
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // of Run; valid once ended is closed
}

// fencedStore is the disk as one life sees it: gone when the life is over.
type fencedStore struct {
	storage.Store
	life *life
}

var errPowerLost = errors.New("power lost")

func (f *fencedStore) check() error {
	if f.life.dead.Load() {
		return errors.Join(storage.ErrFailed, errPowerLost)
	}
	return nil
}

// Write implements storage.Store.
func (f *fencedStore) Write(batches []storage.Batch) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.Store.Write(batches)
}

// SetMeta implements storage.Store.
func (f *fencedStore) SetMeta(name string, value []byte) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.Store.SetMeta(name, value)
}

// Drop implements storage.Store.
func (f *fencedStore) Drop(group uint32) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.Store.Drop(group)
}

// Replace implements storage.Store.
func (f *fencedStore) Replace(group uint32) (storage.Replacer, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	r, err := f.Store.Replace(group)
	return &fencedReplacer{Replacer: r, store: f}, err
}

// Close implements storage.Store. The disk stays.
func (f *fencedStore) Close() error { return nil }

// fencedReplacer keeps a dead life from replacing the state.
type fencedReplacer struct {
	storage.Replacer
	store *fencedStore
}

// Commit implements storage.Replacer.
func (r *fencedReplacer) Commit(mark storage.Mark) error {
	if err := r.store.check(); err != nil {
		return err
	}
	return r.Replacer.Commit(mark)
}

// add makes a machine with an empty disk.
func (w *world) add(name string) *machine {
	m := &machine{w: w, name: name}
	m.wipe()
	w.machines = append(w.machines, m)
	return m
}

// wipe empties the disk of a machine that is off.
func (m *machine) wipe() {
	m.fs = logstore.NewMemFS()
	m.store = memory.New(memory.Config{Durable: !m.w.null})
}

func (m *machine) config() quorate.NodeConfig {
	cfg := quorate.DefaultNodeConfig(m.name)
	cfg.Cache = fsm.BudgetConfig{Ceiling: 64 << 10, High: 48 << 10, Low: 32 << 10}
	cfg.Mux.ListenAddr = m.name + ":7000"
	cfg.Membership.Seeds = m.w.seeds
	cfg.Membership.Groups = uint32(*groupsFlag)
	cfg.Membership.ClientURL = "ws://" + m.name + "/ws"
	// Small, so that nodes fall behind the log in no time.
	cfg.Raft.TrailingLogs, cfg.Raft.SnapshotThreshold, cfg.Raft.SnapshotInterval = 64, 100, 2*time.Second
	return cfg
}

// start starts a node on a machine that is off.
func (m *machine) start() {
	m.broken.Store(false)
	if m.w.null {
		m.wipe()
	}
	l := &life{machine: m, ended: make(chan struct{})}
	node, err := quorate.OpenNode(m.config(), quorate.NodeDeps{
		Logger:   m.w.logger(m.name),
		Network:  m.w.net.Host(m.name),
		LogFS:    m.fs,
		Store:    &fencedStore{Store: m.store, life: l},
		Physical: func() int64 { return time.Now().UnixMilli() + m.skew.Load() },
	})
	if err != nil {
		m.w.problem("%s does not start: %v", m.name, err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.node, l.cancel = node, cancel
	node.Router().ReceiveTopics(m.w.receive(l))
	go func() {
		defer close(l.ended)
		l.err = node.Run(ctx)
	}()
	m.life.Store(l)
}

// kill takes the power away: what was not synced is gone, or torn.
func (m *machine) kill() {
	l := m.life.Load()
	if l == nil {
		return
	}
	l.dead.Store(true)
	m.fs.CrashTorn(m.w.rng.Uint64())
	m.w.net.CrashHost(m.name)
	l.end()
	m.life.Store(nil)
}

// stop shuts the node down as SIGTERM does.
func (m *machine) stop() {
	l := m.life.Load()
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	// What cannot be handed over is elected anew.
	_ = l.node.Drain(ctx)
	l.end()
	l.dead.Store(true)
	m.life.Store(nil)
}

func (l *life) end() {
	l.cancel()
	<-l.ended
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// A node without power complains about its disk.
	_ = l.node.Close(ctx)
}

// gaveUp reports whether the node ended by itself.
func (l *life) gaveUp() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}
