package mirror

import (
	"context"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/raftnode"
)

// Progress is how far the table has come with a group.
type Progress struct {
	// Index: every change up to it is in the table, but for those of Rejected.
	Index uint64
	// Rejected are keys whose rows the database refuses.
	Rejected []fsm.Name
}

// Progress waits until every change of group up to index is in the table, hurrying it on,
// or until ctx ends, and returns how far it has come; that may be less than index. It fails
// with *raftnode.NotLeaderError where this node does not write the group.
func (m *Mirror) Progress(ctx context.Context, id uint32, index uint64) (Progress, error) {
	g := m.group(id)
	for {
		g.mu.Lock()
		serving, done, moved := g.serving, g.done, g.moved
		p := Progress{Index: done}
		if serving && (done >= index || ctx.Err() != nil) {
			for name := range g.rejected {
				p.Rejected = append(p.Rejected, name)
			}
		}
		g.mu.Unlock()
		switch {
		case !serving:
			return Progress{}, &raftnode.NotLeaderError{Group: id}
		case done >= index || ctx.Err() != nil:
			return p, nil
		}
		g.hurry()
		select {
		case <-moved:
		case <-ctx.Done():
		}
	}
}
