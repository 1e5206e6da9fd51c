package quorate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/raftnode/membership"
)

// Run forms, joins or resumes the cluster and works until ctx ends, which returns
// nil, as does the node leaving its cluster at its own wish. Errors: *RefusedError,
// one that wraps ErrStorageFailed, or what kept a replica from starting. Run is
// called once; Close follows.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	changed, unsubscribe := n.agent.Subscribe()
	defer unsubscribe()
	n.mux.Start()
	wg.Go(func() { n.hub.Run(ctx.Done()) })
	wg.Go(func() { n.relay(ctx, changed) })
	wg.Go(func() { n.indexes.Run(ctx.Done()) })
	wg.Go(func() { n.trim(ctx) })
	wg.Go(func() { n.router.Collect(ctx) })
	if n.mirror != nil {
		wg.Go(func() { n.mirror.Run(ctx) })
	}
	wg.Go(func() { n.scrubs.run(ctx) })
	repaired := make(chan error, 1)
	wg.Go(func() { repaired <- n.repairs.run(ctx) })
	flushed := make(chan error, 1)
	wg.Go(func() { flushed <- n.flusher.Run(ctx) })
	kept := make(chan error, 1)
	wg.Go(func() { kept <- n.agent.Run(ctx) })
	select {
	case err := <-n.fatal:
		return storageFailed(err)
	case err := <-flushed:
		return storageFailed(err)
	case err := <-repaired:
		return storageFailed(err)
	case err := <-kept:
		if err == nil && ctx.Err() == nil {
			close(n.left)
		}
		return classify(err)
	}
}

// trim looks at the water marks of the memory for items at every tick.
func (n *Node) trim(ctx context.Context) {
	tick := time.NewTicker(n.cfg.CacheInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if evicted := n.budget.Trim(); evicted > 0 {
				used, dirty := n.budget.Used()
				n.log.Debug("evicted to the low water mark", "items", evicted, "bytes", used, "dirty_bytes", dirty)
			}
		}
	}
}

// relay has clients told of what changed in the cluster, and indexes what is defined.
func (n *Node) relay(ctx context.Context, changed <-chan struct{}) {
	for {
		n.defineIndexes()
		select {
		case <-ctx.Done():
			return
		case <-changed:
			n.router.ClusterChanged()
		}
	}
}

// defineIndexes puts the index definitions into force that this node follows. Definitions
// that cannot be read change nothing: queries are right without indexes.
func (n *Node) defineIndexes() {
	if n.router.PartitionMap() == nil {
		return
	}
	document, version := n.router.Document(partitions.IndexDocument)
	if n.indexed.known && version == n.indexed.version {
		return
	}
	n.indexed.known, n.indexed.version = true, version
	list, err := partitions.Indexes(document)
	if err != nil {
		n.log.Error("index definitions cannot be read, those in force stay", "version", version, "err", err)
		return
	}
	n.indexes.Define(list)
}

// storageFailed marks err, which may be nil, as a failure of the node's storage.
func storageFailed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrStorageFailed, err)
}

// classify gives an error of the membership the meaning that callers act on.
func classify(err error) error {
	var refused *membership.RefusedError
	var duplicate *membership.DuplicateError
	switch {
	case errors.As(err, &refused), errors.As(err, &duplicate):
		return &RefusedError{Err: err}
	case errors.Is(err, storage.ErrFailed):
		return storageFailed(err)
	default:
		return err
	}
}

// CaughtUp reports whether the node can serve at present: it belongs to a cluster,
// every replica here has applied what was committed when it came, and, with a database,
// what that held before the cluster, every one knows a leader, and none is out of service.
func (n *Node) CaughtUp() bool {
	if !n.agent.CaughtUp() || n.mirror != nil && !n.mirror.Ready() || len(n.host.Damaged()) > 0 {
		return false
	}
	for _, g := range n.host.Groups() {
		if leader, _ := g.Leader(); leader == "" {
			return false
		}
	}
	return true
}

// mirrorDrain is how much of a drain is for the database: whatever waits for it is found
// by the next leaders.
const mirrorDrain = 10 * time.Second

// Drain hands every leadership over for which there is a caught-up voter and takes
// no further proposals. The error names what could not be handed over before ctx
// ended; nothing is lost then, an election follows.
func (n *Node) Drain(ctx context.Context) error {
	if n.mirror != nil {
		writing, cancel := context.WithTimeout(ctx, mirrorDrain)
		n.mirror.Drain(writing)
		cancel()
	}
	n.agent.BeginDrain()
	return n.host.Drain(ctx)
}

// Close ends the node after Run has returned: it writes what is dirty to the store,
// which ctx bounds, and releases log, port and store. An error of the final flush
// loses nothing: the log has it. Calling it again returns the same.
func (n *Node) Close(ctx context.Context) error {
	n.closing.Do(func() { n.closed = n.close(ctx) })
	return n.closed
}

// close releases the parts in the order of their use of each other. Parts that
// were never opened are nil.
func (n *Node) close(ctx context.Context) error {
	var errs []error
	if n.router != nil {
		n.router.Close()
	}
	if n.flusher != nil {
		errs = append(errs, n.flusher.Close(ctx))
	}
	if n.host != nil {
		errs = append(errs, n.host.Close())
	}
	if n.mux != nil {
		errs = append(errs, n.mux.Close())
	}
	if n.exports != nil { // after the last handler, before the store
		errs = append(errs, n.exports.close())
	}
	if n.wal != nil {
		err := n.wal.Close()
		if err == nil && n.begun {
			err = endEpoch(n.deps.Store, n.wal)
		}
		errs = append(errs, err)
	}
	if n.metrics != nil {
		n.metrics.unregister(n.deps.Registerer)
	}
	errs = append(errs, n.deps.Store.Close())
	return errors.Join(errs...)
}
