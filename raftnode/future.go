package raftnode

import (
	"context"
	"errors"
	"reflect"

	"github.com/hashicorp/raft"
)

// await blocks until the library answers f or the instance has ended; in the latter
// case the error is raft.ErrRaftShutdown.
//
// The library forgets futures that wait for its state machine goroutine when it
// shuts down: their Error blocks forever. All its futures have a field ShutdownCh
// that would end the waiting, which it sets for some of them only.
func (in *instance) await(f raft.Future) error {
	if v := reflect.ValueOf(f); v.Kind() == reflect.Pointer {
		if index := in.shutdownField(v.Type().Elem()); index != nil {
			v.Elem().FieldByIndex(index).Set(reflect.ValueOf(in.ended))
		}
	}
	return f.Error()
}

// shutdownField is where a type of futures has its field ShutdownCh; nil if it has
// none. It is asked for every entry, and slow.
func (in *instance) shutdownField(t reflect.Type) []int {
	if cached, ok := in.shutdownFields.Load(t); ok {
		return cached.([]int)
	}
	var index []int
	if t.Kind() == reflect.Struct {
		if field, ok := t.FieldByName("ShutdownCh"); ok && field.IsExported() {
			index = field.Index
		}
	}
	in.shutdownFields.Store(t, index)
	return index
}

// call runs a blocking operation on the library and waits for it or for ctx; then
// it goes on in the background and its outcome is unknown.
func (in *instance) call(ctx context.Context, operation func() raft.Future) error {
	done := make(chan error, 1)
	if !in.spawn(func() { done <- in.await(operation()) }) {
		return ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.Join(ErrUnknown, ctx.Err())
	}
}

// spawn runs fn in a goroutine that close waits for, unless it is too late for that.
func (in *instance) spawn(fn func()) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closing {
		return false
	}
	in.running.Go(fn)
	return true
}

// classify turns an error of the library into one of this package, by class.
// Whatever is not known to have left no trace is unknown.
func (g *Group) classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return g.notLeader()
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		// The successor is not elected yet, so there is nobody to name.
		return &NotLeaderError{Group: g.id}
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return errors.Join(ErrBusy, err)
	case errors.Is(err, ErrUnknown), errors.Is(err, ErrClosed):
		return err
	default:
		// ErrLeadershipLost, ErrRaftShutdown, ErrAbortedByRestore, storage errors, and
		// entries that this replica failed to apply.
		return errors.Join(ErrUnknown, err)
	}
}
