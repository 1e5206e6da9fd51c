package partitions

import (
	"cmp"
	"context"
	"slices"

	"github.com/quorate/quorate/protocol"
)

// Rows returns live rows of a map in key order, those below from left out: of those that
// keep admits the first, up to limit and about maxBytes, but at least one; and whether
// there are more. keep must not linger; nil admits all. The states of the groups are not
// older than what s was acknowledged. It blocks until the replicas are that far, or ctx
// ends. Errors: ErrIncomplete, ErrUnavailable, those of the state machine.
func (r *Router) Rows(ctx context.Context, s *Session, mapName, from string, limit, maxBytes int, keep func(Row) bool) (rows []Row, more bool, err error) {
	now := r.deps.Physical()
	set := rowSet{limit: limit, maxBytes: maxBytes}
	err = r.eachGroup(ctx, s, func(_ uint32, reader Reader) error {
		_, err := reader.Scan(mapName, from, func(key string, rec protocol.Record) bool {
			row := Row{Key: key, Record: rec}
			if rec.IsTombstone() || rec.Expired(now) || keep != nil && !keep(row) {
				return ctx.Err() == nil
			}
			return set.add(row) && ctx.Err() == nil
		})
		set.merge()
		return cmp.Or(err, ctx.Err())
	})
	return set.rows, set.more, err
}

// rowSet gathers the first rows of several groups, each in key order, within bounds. It
// holds at most twice what the bounds say.
type rowSet struct {
	limit, maxBytes int
	// rows are those of the groups before, in order; more says that rows behind them
	// were left out.
	rows []Row
	more bool
	// group are the rows of the present group, of so many bytes.
	group []Row
	bytes int
}

// rowBytes is what a row takes beside its key and value.
const rowBytes = 64

func (r *Row) size() int { return rowBytes + len(r.Key) + len(r.Record.Value) }

// add takes a row of the present group, and reports whether later ones may be of use.
func (s *rowSet) add(row Row) bool {
	if s.more && len(s.rows) > 0 && row.Key > s.rows[len(s.rows)-1].Key {
		return false
	}
	s.group = append(s.group, row)
	s.bytes += row.size()
	return len(s.group) <= s.limit && s.bytes <= s.maxBytes
}

// merge ends the present group.
func (s *rowSet) merge() {
	all := append(s.rows, s.group...)
	slices.SortFunc(all, func(a, b Row) int { return cmp.Compare(a.Key, b.Key) })
	fits, bytes := 0, 0
	for fits < len(all) && fits < s.limit {
		if bytes += all[fits].size(); bytes > s.maxBytes && fits > 0 {
			break
		}
		fits++
	}
	s.more = s.more || fits < len(all)
	clear(all[fits:])
	s.rows, s.group, s.bytes = all[:fits], nil, 0
}
