package partitions

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/protocol"
)

// ErrConflict says that a document was changed by somebody else since it was read.
var ErrConflict = errors.New("changed meanwhile, read it again")

// Document returns what operators gave the cluster under a name, as this node's replica of
// the system group has it, and its version; version zero: nothing yet. The value must not
// be modified.
func (r *Router) Document(name string) (value []byte, version uint64) {
	d := r.deps.Cluster().Document(name)
	return d.Value, d.Version
}

// FreshDocuments has Document show what was committed before the call, also where this node has
// lagged behind. It costs an entry in the log of the system group, and blocks until this
// node's replica has applied it, or ctx ends. Errors: ErrUnavailable.
func (r *Router) FreshDocuments(ctx context.Context) error {
	if r.groups() == 0 {
		return errNoCluster
	}
	results, err := r.mark(ctx, nil, []uint32{placement.SystemGroup})
	if err != nil {
		return err
	}
	if err := r.deps.Groups.WaitApplied(ctx, placement.SystemGroup, results[0].Index); err != nil {
		return fmt.Errorf("%w: documents: %w", ErrUnavailable, err)
	}
	return nil
}

// PutDocument gives the whole cluster a document that was computed from version base of
// it, and returns its version. It blocks until this node follows it, or ctx ends. Errors:
// ErrConflict; ErrUnavailable (nothing was proposed); any other leaves the outcome open.
func (r *Router) PutDocument(ctx context.Context, name string, base uint64, value []byte) (version uint64, err error) {
	if r.groups() == 0 {
		return 0, errNoCluster
	}
	cmd := command.EncodeDocumentPut(base, system.Document{Name: name, Value: value})
	res, err := r.bring(ctx, nil, placement.SystemGroup, cmd)
	switch {
	case err != nil:
		return 0, fmt.Errorf("put document %s: %w", name, err)
	case res.Code == protocol.CodeStale:
		return 0, fmt.Errorf("document %s was %w", name, ErrConflict)
	case res.Code != 0:
		return 0, fmt.Errorf("put document: %s", res.Reason)
	}
	return base + 1, r.awaitDocument(ctx, name, base+1)
}

// awaitDocument blocks until this node follows a version of a document, or ctx ends.
func (r *Router) awaitDocument(ctx context.Context, name string, version uint64) error {
	changed := make(chan struct{}, 1)
	cancel := r.mapWatchers.add(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer cancel()
	for {
		if _, have := r.Document(name); have >= version {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("document %s is committed, and this node does not follow it yet: %w", name, ctx.Err())
		}
	}
}
