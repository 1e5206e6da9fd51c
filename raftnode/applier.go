package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
)

// errNotApplied is the response to entries that are committed and were not
// applied here, because the state machine failed before.
var errNotApplied = errors.New("state machine stopped")

// configuration is a committed Raft configuration and the entry that set it.
type configuration struct {
	index   uint64
	servers []raft.Server
}

// applier feeds a StateMachine with committed entries. It implements all of
// raft.BatchingFSM but Restore; batches also carry configuration entries, so that
// the machine knows which configuration its state goes with. The library calls it
// from one goroutine, of one instance at a time.
type applier struct {
	group   uint32
	machine StateMachine
	// fatal takes the error that stops the node.
	fatal func(error)
	// ctx ends with the group, and with it the waiting of a failed applier.
	ctx context.Context
	// hint is told the last index of every batch: it is committed for good.
	hint func(index uint64)
	// progressed is told that entries were applied.
	progressed func()

	// applied is the last entry that is in the state or has no effect on it.
	applied watermark
	// current is the configuration in force at applied. Never nil.
	current atomic.Pointer[configuration]
	// busyNanos is the time spent applying.
	busyNanos atomic.Int64

	// failed is set once Apply failed. Only the applying goroutine uses it.
	failed  bool
	entries []fsm.Entry
}

// resume takes over what the machine brought back from its storage.
func (a *applier) resume() error {
	conf, err := markConfiguration(a.machine.Flushed())
	if err != nil {
		return err
	}
	a.current.Store(conf)
	index, _ := a.machine.Applied()
	a.applied.raise(index)
	return nil
}

// Apply implements raft.FSM.
func (a *applier) Apply(log *raft.Log) any { return a.ApplyBatch([]*raft.Log{log})[0] }

// ApplyBatch implements raft.BatchingFSM. The response to each command entry is
// its []command.Result, or an error when it was not applied. After a failure the
// group's applied index never moves again: this call parks until the group is
// stopped, since the library knows no way to refuse a committed entry.
func (a *applier) ApplyBatch(logs []*raft.Log) []any {
	responses := make([]any, len(logs))
	results, err := a.apply(logs)
	if err != nil {
		for i := range responses {
			responses[i] = err
		}
		<-a.ctx.Done()
		return responses
	}
	for i := range results {
		responses[i] = results[i]
	}
	return responses
}

func (a *applier) apply(logs []*raft.Log) ([][]command.Result, error) {
	if a.failed {
		return nil, errNotApplied
	}
	start := time.Now()
	a.entries = a.entries[:0]
	for _, l := range logs {
		a.entries = append(a.entries, fsm.Entry{
			Index: l.Index, Term: l.Term, Data: l.Data, Configuration: l.Type == raft.LogConfiguration,
		})
	}
	results, err := a.machine.Apply(a.entries)
	if err == nil && len(results) != len(logs) {
		err = fmt.Errorf("%d result lists for %d entries", len(results), len(logs))
	}
	last := logs[len(logs)-1].Index
	if err != nil {
		a.failed = true
		a.fatal(fmt.Errorf("apply group %d up to index %d: %w", a.group, last, err))
		return nil, errNotApplied
	}
	a.noteConfigurations(logs)
	clear(a.entries)
	a.busyNanos.Add(int64(time.Since(start)))
	a.applied.raise(last)
	a.hint(last)
	a.progressed()
	return results, nil
}

func (a *applier) noteConfigurations(logs []*raft.Log) {
	for _, l := range logs {
		if l.Type == raft.LogConfiguration && l.Index > a.current.Load().index {
			a.current.Store(&configuration{index: l.Index, servers: raft.DecodeConfiguration(l.Data).Servers})
		}
	}
}

// Snapshot implements raft.FSM. The state stays where it is: see snapshotStore.
func (a *applier) Snapshot() (raft.FSMSnapshot, error) { return checkpoint{}, nil }

// restore makes a received snapshot the state, unless the state has it behind it:
// going back would show readers less than they were acknowledged. Either way the
// durable state then reaches the snapshot, so that the log may go. The machine
// takes all of a snapshot or keeps its state, so an error only fails this transfer.
func (a *applier) restore(meta *raft.SnapshotMeta, r io.Reader) (replaced bool, err error) {
	if a.failed {
		return false, errNotApplied
	}
	if applied, _ := a.machine.Applied(); applied >= meta.Index {
		return false, a.machine.Checkpoint(a.ctx, metaPosition(meta))
	}
	if err := a.machine.Restore(r); err != nil {
		if errors.Is(err, fsm.ErrStopped) {
			a.failed = true
			a.fatal(fmt.Errorf("restore snapshot of group %d at %d: %w", a.group, meta.Index, err))
		}
		return false, fmt.Errorf("restore snapshot: %w", err)
	}
	return true, a.resume()
}

// unwrapReceived finds the received snapshot below what the library puts around it.
func unwrapReceived(r io.ReadCloser) (*received, error) {
	for {
		switch t := r.(type) {
		case *received:
			return t, nil
		case raft.ReadCloserWrapper:
			r = t.WrappedReadCloser()
		default:
			return nil, fmt.Errorf("restore snapshot: source is a %T", r)
		}
	}
}

// checkpoint is the raft.FSMSnapshot of a group: it holds nothing, and persisting
// it makes the sink checkpoint the machine.
type checkpoint struct{}

// Persist implements raft.FSMSnapshot.
func (checkpoint) Persist(sink raft.SnapshotSink) error {
	own, ok := sink.(*snapshotSink)
	if !ok {
		return fmt.Errorf("persist checkpoint: sink is a %T", sink)
	}
	return own.checkpoint()
}

// Release implements raft.FSMSnapshot.
func (checkpoint) Release() {}
