package partitions

import (
	"cmp"
	"context"
	"slices"

	"github.com/quorate/quorate/protocol"
)

// Rows returns live rows of a map in key order, those below from left out: up to limit
// of those that keep admits, and whether there are more. keep must not linger; nil
// admits all. The states of the groups are not older than what s was acknowledged. It
// blocks until the replicas are that far, or ctx ends. Errors: ErrIncomplete,
// ErrUnavailable, those of the state machine.
func (r *Router) Rows(ctx context.Context, s *Session, mapName, from string, limit int, keep func(Row) bool) (rows []Row, more bool, err error) {
	now := r.deps.Physical()
	err = r.eachGroup(ctx, s, func(_ uint32, reader Reader) error {
		found := 0
		_, err := reader.Scan(mapName, from, func(key string, rec protocol.Record) bool {
			row := Row{Key: key, Record: rec}
			if rec.IsTombstone() || rec.Expired(now) || keep != nil && !keep(row) {
				return ctx.Err() == nil
			}
			rows = append(rows, row)
			found++
			return found <= limit && ctx.Err() == nil
		})
		return cmp.Or(err, ctx.Err())
	})
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Key, b.Key) })
	return rows[:min(len(rows), limit)], len(rows) > limit, nil
}
