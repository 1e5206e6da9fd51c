package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Leader is in whose name rows are written.
type Leader struct {
	Owner Owner
	Group uint32
	Term  uint64
}

// Position is how far the rows of a group are written.
type Position struct {
	// Term is that of the leader that wrote last, Index the log index up to which every
	// change is in the table.
	Term, Index uint64
	// Sequence counts the transactions of the group. One that is less than before says that
	// the database has lost what it had committed.
	Sequence uint64
	// Token is at least the greatest token of a lock when that was noted.
	Token uint64
}

// Batch is what one transaction writes.
type Batch struct {
	Leader Leader
	// After is the sequence of the leader's last transaction, as far as it knows.
	After uint64
	Rows  []Row
	// Index, unless zero, is that up to which every change is in the table with this batch.
	Index uint64
	// Token is one that the group's locks do not pass before it is raised; zero leaves it.
	Token uint64
	// PrunedMillis: what was removed up to then is forgotten, and its rows go.
	PrunedMillis int64
}

// statements are the texts of the statements with the names of the tables.
type statements struct {
	owner, setOwner, greatestToken, forgetGroups string
	group, setGroup, upsert, remove, prune       string
	page                                         string
}

func newStatements(name string) statements {
	rows, owner, groups := quoted(name), quoted(name+"_owner"), quoted(name+"_groups")
	return statements{
		owner: `SELECT cluster, instance, epoch, token FROM ` + owner + ` WHERE single `,
		setOwner: `INSERT INTO ` + owner + ` (cluster, instance, epoch, token) VALUES ($1, $2, $3, $4)
			ON CONFLICT (single) DO UPDATE SET cluster = $1, instance = $2, epoch = $3, token = $4`,
		greatestToken: `SELECT COALESCE(max(token), 0) FROM ` + groups,
		forgetGroups:  `DELETE FROM ` + groups,
		group:         `SELECT log_term, log_index, sequence, token FROM ` + groups + ` WHERE log_group = $1 AND epoch = $2 FOR UPDATE`,
		setGroup: `INSERT INTO ` + groups + ` (log_group, epoch, log_term, log_index, sequence, token) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (log_group) DO UPDATE SET epoch = $2, log_term = $3, log_index = $4, sequence = $5, token = $6`,
		// A row is replaced by what was written later only.
		upsert: `INSERT INTO ` + rows + ` AS r
			(map_name, key, value, expiration_time, created_at, updated_at, epoch, log_group, log_term, log_index, removed_at)
			SELECT n.map_name, n.key, n.value, n.expiration_time, $5, $5, $6, $7, $8, n.log_index, n.removed_at
			FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $9::bigint[], $10::bigint[])
				AS n (map_name, key, value, expiration_time, log_index, removed_at)
			ON CONFLICT (map_name, key, is_backup) DO UPDATE SET
				value = excluded.value, expiration_time = excluded.expiration_time, updated_at = excluded.updated_at,
				epoch = excluded.epoch, log_group = excluded.log_group, log_term = excluded.log_term,
				log_index = excluded.log_index, removed_at = excluded.removed_at
			WHERE (r.epoch, r.log_term, r.log_index) < (excluded.epoch, excluded.log_term, excluded.log_index)`,
		remove: `DELETE FROM ` + rows + ` r USING unnest($1::text[], $2::text[]) AS n (map_name, key)
			WHERE r.map_name = n.map_name AND r.key = n.key AND NOT r.is_backup AND (r.epoch, r.log_term) <= ($3, $4)`,
		prune: `DELETE FROM ` + rows + ` WHERE log_group = $1 AND epoch = $2 AND removed_at > 0 AND removed_at <= $3`,
		page: `SELECT map_name, key, value FROM ` + rows + `
			WHERE NOT is_backup AND (map_name, key) > ($1, $2) ORDER BY map_name, key LIMIT $3`,
	}
}

// Take makes l the writer of its group: leaders of earlier terms are deposed from then
// on. It is a Write of nothing.
func (t *Table) Take(ctx context.Context, l Leader) (Position, error) {
	return t.Write(ctx, Batch{Leader: l})
}

// Write carries out one transaction, and returns how far the group is written with it.
// ErrDeposed: the leader is of an earlier term than one that wrote. ErrForeign: the table
// is not that of the owner. *BackError: the database lost transactions. *RejectedError: that
// row alone is refused. Nothing is written then.
// Any other error leaves open whether the batch is written. It can be repeated always.
func (t *Table) Write(ctx context.Context, b Batch) (Position, error) {
	next, err := t.tryWrite(ctx, b)
	if err != nil && refusesData(err) && len(b.Rows) > 0 {
		err = t.blame(ctx, b, err)
	}
	if err != nil {
		return Position{}, fmt.Errorf("write rows of group %d: %w", b.Leader.Group, classify(err))
	}
	return next, nil
}

// blame finds a row that is refused by halving the batch. The halves that are taken stay
// written, which changes nothing: they are written again.
func (t *Table) blame(ctx context.Context, b Batch, cause error) error {
	if len(b.Rows) == 1 {
		return &RejectedError{Map: b.Rows[0].Map, Key: b.Rows[0].Key, Err: cause}
	}
	for _, half := range [][]Row{b.Rows[:len(b.Rows)/2], b.Rows[len(b.Rows)/2:]} {
		part := b
		part.Rows, part.Index = half, 0
		_, err := t.tryWrite(ctx, part)
		switch {
		case err == nil:
		case refusesData(err):
			return t.blame(ctx, part, err)
		default:
			return err
		}
	}
	// Each half is taken: then so is the whole, or the database decides anew each time.
	return fmt.Errorf("refused as a whole, taken in halves: %w", cause)
}

func (t *Table) tryWrite(ctx context.Context, b Batch) (next Position, err error) {
	err = pgx.BeginTxFunc(ctx, t.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) (err error) {
		found, err := t.enter(ctx, tx, b.Leader)
		if err != nil {
			return err
		}
		if found.Sequence < b.After {
			return &BackError{Found: found}
		}
		if err := t.writeRows(ctx, tx, b); err != nil {
			return err
		}
		next = Position{
			Term: b.Leader.Term, Index: max(found.Index, b.Index), Sequence: found.Sequence + 1, Token: max(found.Token, b.Token),
		}
		_, err = tx.Exec(ctx, t.sql.setGroup, b.Leader.Group, b.Leader.Owner.Epoch, next.Term, next.Index, next.Sequence, next.Token)
		return err
	})
	return next, err
}

// enter checks that l may write, and holds off everybody else who wants to.
func (t *Table) enter(ctx context.Context, tx pgx.Tx, l Leader) (found Position, err error) {
	// The setting of the server may acknowledge commits that are not on disk. What waits for
	// more than its disk is left alone.
	if _, err := tx.Exec(ctx, "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') <> 'remote_apply'"); err != nil {
		return Position{}, err
	}
	owner, err := t.owner(ctx, tx, "FOR SHARE")
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Position{}, fmt.Errorf("%w: it has no owner", ErrForeign)
	case err != nil:
		return Position{}, err
	case owner.Cluster != l.Owner.Cluster || owner.Instance != l.Owner.Instance || owner.Epoch != l.Owner.Epoch:
		return Position{}, fmt.Errorf("%w: it is that of cluster %s", ErrForeign, owner.Cluster)
	}
	err = tx.QueryRow(ctx, t.sql.group, l.Group, l.Owner.Epoch).Scan(&found.Term, &found.Index, &found.Sequence, &found.Token)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return Position{}, err
	}
	if found.Term > l.Term {
		return Position{}, fmt.Errorf("%w: term %d, not %d", ErrDeposed, found.Term, l.Term)
	}
	return found, nil
}

func (t *Table) writeRows(ctx context.Context, tx pgx.Tx, b Batch) error {
	var kept, gone columns
	for i := range b.Rows {
		if row := &b.Rows[i]; row.Gone {
			gone.add(row, nil)
		} else {
			kept.add(row, appendValue(nil, row))
		}
	}
	l := &b.Leader
	if len(kept.keys) > 0 {
		_, err := tx.Exec(ctx, t.sql.upsert, kept.maps, kept.keys, kept.values, kept.expirations, time.Now().UnixMilli(),
			l.Owner.Epoch, l.Group, l.Term, kept.indexes, kept.removed)
		if err != nil {
			return err
		}
	}
	if len(gone.keys) > 0 {
		if _, err := tx.Exec(ctx, t.sql.remove, gone.maps, gone.keys, l.Owner.Epoch, l.Term); err != nil {
			return err
		}
	}
	if b.PrunedMillis > 0 {
		if _, err := tx.Exec(ctx, t.sql.prune, l.Group, l.Owner.Epoch, b.PrunedMillis); err != nil {
			return err
		}
	}
	return nil
}

// columns are rows in columns, as unnest takes them.
type columns struct {
	maps, keys                    []string
	values                        [][]byte
	expirations, indexes, removed []int64
}

func (c *columns) add(row *Row, value []byte) {
	mapName, _ := column(row.Map)
	key, _ := column(row.Key)
	expiration := int64(0)
	if rec := row.Record; rec != nil && rec.TTLMillis > 0 {
		expiration = rec.Timestamp.Millis + rec.TTLMillis
	}
	c.maps, c.keys, c.values = append(c.maps, mapName), append(c.keys, key), append(c.values, value)
	c.expirations, c.indexes = append(c.expirations, expiration), append(c.indexes, int64(row.Index))
	c.removed = append(c.removed, row.RemovedMillis)
}

// page is the number of rows that Scan reads at a time.
const page = 1024

// Scan calls fn for every row until it returns an error, which Scan returns. Rows that
// are written meanwhile may be missed. A row that is not ours to read is an error.
func (t *Table) Scan(ctx context.Context, fn func(Row) error) error {
	mapName, key := "", ""
	for {
		rows, err := t.pool.Query(ctx, t.sql.page, mapName, key, page)
		if err != nil {
			return fmt.Errorf("read rows: %w", classify(err))
		}
		list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (row Row, err error) {
			var value []byte
			if err := r.Scan(&mapName, &key, &value); err != nil {
				return Row{}, err
			}
			return decodeRow(mapName, key, value)
		})
		if err != nil {
			return fmt.Errorf("read rows: %w", classify(err))
		}
		for _, row := range list {
			if err := fn(row); err != nil {
				return err
			}
		}
		if len(list) < page {
			return nil
		}
	}
}
