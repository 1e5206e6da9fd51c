package raftnode

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// instance is one life of the library in a group. A group replaces its instance to
// get out of states that the library cannot leave by itself.
type instance struct {
	raft      *raft.Raft
	transport *transport
	log       *guardedLog

	// changed has a token when leader, term or role may have changed.
	changed chan struct{}
	// broken takes the reason why the instance must be replaced; capacity 1.
	broken chan string
	// stop is closed when the instance is told to end, ended when it has.
	stop, ended chan struct{}
	// full has a token when the log gathered many bytes, progress when entries were
	// applied here or taken by a follower.
	full, progress chan struct{}

	mu      sync.Mutex // protects the fields below, and running against late additions
	closing bool
	// refusedSince is when the library began to refuse entries because of a
	// leadership transfer; zero while it takes them.
	refusedSince time.Time
	// running counts the goroutines that wait for answers of the library.
	running sync.WaitGroup

	// shutdownFields caches shutdownField by type.
	shutdownFields sync.Map

	// transferring is set while the leadership is being handed over.
	transferring atomic.Bool
}

// newInstance starts the library on the group's log and state.
func (g *Group) newInstance() (*instance, error) {
	in := &instance{
		changed:  make(chan struct{}, 1),
		broken:   make(chan string, 1),
		full:     make(chan struct{}, 1),
		progress: make(chan struct{}, 1),
		stop:     make(chan struct{}),
		ended:    make(chan struct{}),
	}
	in.log = &guardedLog{
		groupLog: g.log, group: g.id, fatal: g.host.fail, stop: g.stop,
		limit: g.host.cfg.SnapshotBytes, full: in.full,
	}
	in.transport = &transport{
		NetworkTransport: newTransport(g.host.deps.Mux.StreamLayer(g.id), g.host.cfg.RPCTimeout, g.logger),
		peers:            newPeers(g.logger),
		fenced:           g.host.fenced,
		repeat:           g.host.cfg.HeartbeatTimeout / 5,
		progressed:       in.noteProgress,
		stop:             in.stop,
	}
	r, err := g.newRaft(in)
	if err != nil {
		in.transport.Close()
		return nil, err
	}
	in.raft = r
	in.log.armed.Store(true)
	// The filter signals and keeps nothing, so nobody has to drain a channel and the
	// library is never blocked by its observer.
	r.RegisterObserver(raft.NewObserver(nil, false, func(*raft.Observation) bool {
		in.signal()
		return false
	}))
	in.signal()
	in.spawn(func() { g.spread(in) })
	return in, nil
}

// newRaft calls the library, which panics when the stable store fails.
func (g *Group) newRaft(in *instance) (r *raft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(fmt.Errorf("start raft of group %d: %v", g.id, p), g.host.deps.Log.Err())
		}
	}()
	cfg := g.host.cfg.raft(quieten(g.logger.Named("raft")))
	machine := &instanceFSM{
		applier:        g.applier,
		installed:      func(meta *raft.SnapshotMeta, replaced bool) { g.installed(in, meta, replaced) },
		progressedHere: in.noteProgress,
	}
	r, err = raft.NewRaft(cfg, machine, in.log, in.log, g.snapshots, in.transport)
	if err != nil {
		return nil, fmt.Errorf("start raft of group %d: %w", g.id, err)
	}
	return r, nil
}

// instanceFSM is the group's applier as one instance sees it.
type instanceFSM struct {
	*applier
	// installed is told that the state reaches a received snapshot now, before the
	// library empties the log.
	installed func(meta *raft.SnapshotMeta, replaced bool)
	// progressedHere is told that this instance had entries applied.
	progressedHere func()
}

var _ raft.BatchingFSM = (*instanceFSM)(nil)

// ApplyBatch implements raft.BatchingFSM.
func (f *instanceFSM) ApplyBatch(logs []*raft.Log) []any {
	defer f.progressedHere()
	return f.applier.ApplyBatch(logs)
}

// Restore implements raft.FSM.
func (f *instanceFSM) Restore(r io.ReadCloser) error {
	in, err := unwrapReceived(r)
	if err != nil {
		return err
	}
	replaced, err := f.restore(&in.meta, r)
	if err == nil {
		f.installed(&in.meta, replaced)
	}
	return err
}

func (in *instance) signal() {
	select {
	case in.changed <- struct{}{}:
	default:
	}
}

// noteProgress wakes spread.
func (in *instance) noteProgress() {
	select {
	case in.progress <- struct{}{}:
	default:
	}
}

// replace asks the group for a new instance.
func (in *instance) replace(reason string) {
	select {
	case in.broken <- reason:
	default:
	}
}

// leadership is who leads, as one observation.
func (in *instance) leadership() Leadership { return observe(in.raft) }

// leads reports whether the library leads the group, and the term that it leads in.
func (in *instance) leads() (term uint64, leads bool) {
	l := in.leadership()
	return l.Term, l.Role == raft.Leader
}

// noteRefusal watches for a transfer flag that the library failed to take back: a
// leader in that state refuses all entries for good (hashicorp/raft issue 696).
func (in *instance) noteRefusal(err error, limit time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case !errors.Is(err, raft.ErrLeadershipTransferInProgress):
		in.refusedSince = time.Time{}
	case in.refusedSince.IsZero():
		in.refusedSince = time.Now()
	case time.Since(in.refusedSince) > limit:
		in.replace("leadership transfer never ends")
	}
}

// close ends the instance and waits for its goroutines. A call into a log that
// hangs is waited for: it may still write. Closing again does nothing.
func (in *instance) close() {
	in.mu.Lock()
	closing := in.closing
	in.closing = true
	in.mu.Unlock()
	if closing {
		return
	}
	close(in.stop)
	done := in.raft.Shutdown()
	// The library waits for messages under way, which end with their connections.
	in.transport.Close()
	// A shutdown cannot fail.
	_ = done.Error()
	in.transport.CloseStreams()
	close(in.ended)
	in.running.Wait()
}
