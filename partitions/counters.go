package partitions

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/protocol"
)

// MergeCounter raises a counter to a client's state, and returns whether that changed
// anything, or the refusal. It blocks until that is decided or ctx ends. Errors as of
// Write; the merge may be repeated.
func (r *Router) MergeCounter(ctx context.Context, s *Session, name string, state protocol.CounterState) (changed bool, refusal Verdict, err error) {
	cells := map[string]*command.Cell{}
	cell := func(writer string) *command.Cell {
		if cells[writer] == nil {
			cells[writer] = &command.Cell{Writer: writer}
		}
		return cells[writer]
	}
	for writer, total := range state.Positive {
		cell(writer).Positive = total
	}
	for writer, total := range state.Negative {
		cell(writer).Negative = total
	}
	life, err := r.life()
	if err != nil {
		return false, Verdict{}, err
	}
	m := command.CounterMerge{Life: life, Name: name}
	for _, writer := range slices.Sorted(maps.Keys(cells)) {
		m.Cells = append(m.Cells, *cells[writer])
	}
	res, err := r.submit(ctx, s, r.groupOf(name), command.EncodeCounterMerge(m))
	if err != nil {
		return false, Verdict{}, fmt.Errorf("merge counter: %w", err)
	}
	return res.Changed, Verdict{Code: res.Code, Reason: res.Reason}, nil
}

// AddToCounter adds delta, once per dedup id, and returns the counter's total right after
// that, or the refusal. All additions and their totals are linearizable. An empty dedup id
// makes every call a new addition. Errors as of Write.
func (r *Router) AddToCounter(ctx context.Context, s *Session, name string, delta float64, dedup string) (total float64, refusal Verdict, err error) {
	if dedup == "" {
		dedup = fmt.Sprintf("%s#%d", s.origin, r.dedup.Add(1))
	}
	life, err := r.life()
	if err != nil {
		return 0, Verdict{}, err
	}
	cmd := command.EncodeCounterAdd(command.CounterAdd{Life: life, Name: name, Delta: delta, Dedup: dedup})
	res, err := r.submit(ctx, s, r.groupOf(name), cmd)
	if err != nil {
		return 0, Verdict{}, fmt.Errorf("add to counter: %w", err)
	}
	if res.Code != 0 {
		return 0, Verdict{Code: res.Code, Reason: res.Reason}, nil
	}
	total, err = command.DecodeTotal(res.Value)
	return total, Verdict{}, err
}

// Counter returns the state of a counter, empty if there is none, not older than what s
// was acknowledged. It blocks until the replica is that far, or ctx ends. Errors:
// ErrUnavailable, those of the state machine.
func (r *Router) Counter(ctx context.Context, s *Session, name string) (state protocol.CounterState, err error) {
	state = protocol.CounterState{Positive: map[string]float64{}, Negative: map[string]float64{}}
	group := r.groupOf(name)
	if group == 0 {
		return state, errNoCluster
	}
	err = r.readGroup(ctx, s, group, func(_ uint32, reader Reader) error {
		cells, _, err := reader.Counter(name)
		for _, c := range cells {
			if c.Positive > 0 {
				state.Positive[c.Writer] = c.Positive
			}
			if c.Negative > 0 {
				state.Negative[c.Writer] = c.Negative
			}
		}
		return err
	})
	return state, err
}

// life is the cluster's present life. The documents, which a node that catches up reads
// anew, may still be those of an earlier one; its peers let nobody in who is of another.
func (r *Router) life() (string, error) {
	if life := r.deps.Peers.ClusterID(); life != "" {
		return life, nil
	}
	return "", errNoCluster
}

// groupOf is the group of a lock, counter or topic; 0, which submit refuses, before the node
// belongs to a cluster.
func (r *Router) groupOf(name string) uint32 {
	groups := r.groups()
	if groups == 0 {
		return 0
	}
	return placement.GroupOf(name, groups)
}
