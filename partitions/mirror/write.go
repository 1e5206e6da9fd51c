package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage/postgres"
)

func sortNames(names []fsm.Name) {
	slices.SortFunc(names, func(a, b fsm.Name) int { return cmp.Or(cmp.Compare(a.Map, b.Map), cmp.Compare(a.Key, b.Key)) })
}

// writeNames writes what is stored under the keys, in transactions of bounded size. What
// the database refuses is noted as rejected, with its index in indexes if it is there.
func (g *group) writeNames(ctx context.Context, names []fsm.Name, indexes map[fsm.Name]uint64) error {
	var rows []postgres.Row
	bytes := 0
	for i, name := range names {
		item, _, err := g.replica.Item(name.Map, name.Key)
		if err != nil {
			return fmt.Errorf("read what is written: %w", err)
		}
		rows = append(rows, rowOf(&item))
		bytes += size(&item)
		if bytes < g.mirror.cfg.BatchBytes && i < len(names)-1 {
			continue
		}
		if err := g.writeRows(ctx, rows, indexes); err != nil {
			return err
		}
		rows, bytes = nil, 0
	}
	return nil
}

func rowOf(it *fsm.Item) postgres.Row {
	return postgres.Row{
		Map: it.Map, Key: it.Key, Record: it.Record, Set: it.Set,
		Index: it.Index, RemovedMillis: it.RemovedMillis, Gone: !it.Exists(),
	}
}

func size(it *fsm.Item) int {
	n := len(it.Map) + len(it.Key) + it.Set.Size()
	if it.Record != nil {
		n += len(it.Record.Value)
	}
	return n
}

// writeRows writes rows, but for those that are refused.
func (g *group) writeRows(ctx context.Context, rows []postgres.Row, indexes map[fsm.Name]uint64) error {
	for len(rows) > 0 {
		err := g.write(ctx, postgres.Batch{Rows: rows})
		var rejected *postgres.RejectedError
		if !errors.As(err, &rejected) {
			if err == nil {
				g.accept(rows)
			}
			return err
		}
		at := slices.IndexFunc(rows, func(r postgres.Row) bool { return r.Map == rejected.Map && r.Key == rejected.Key })
		g.reject(rows[at], indexes, rejected)
		rows = slices.Delete(rows, at, at+1)
	}
	return nil
}

func (g *group) accept(rows []postgres.Row) {
	g.mirror.metrics.rows.Add(float64(len(rows)))
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.rejected) == 0 {
		return
	}
	for i := range rows {
		delete(g.rejected, fsm.Name{Map: rows[i].Map, Key: rows[i].Key})
	}
}

func (g *group) reject(row postgres.Row, indexes map[fsm.Name]uint64, err error) {
	name := fsm.Name{Map: row.Map, Key: row.Key}
	index, noted := indexes[name]
	if !noted || row.Index > 0 && row.Index < index {
		index = row.Index
	}
	g.mu.Lock()
	_, known := g.rejected[name]
	if !known {
		g.rejected[name] = index
	}
	g.mu.Unlock()
	if !known {
		g.mirror.failed(g.id, "a row is refused by the database; it is tried again later", err)
	}
}

// noteEvery is how many entries the position in the table lags behind: what the next
// leader writes once more, against a transaction that writes no row.
const noteEvery = 1000

// finish notes that every change up to index is in the table. Refused rows hold the
// position in the table back, for the next leader to find them.
func (g *group) finish(ctx context.Context, index uint64) error {
	g.mu.Lock()
	position := index
	for _, refused := range g.rejected {
		position = min(position, refused-1)
	}
	first := !g.serving
	g.mu.Unlock()
	batch := postgres.Batch{Index: position}
	if fence := g.replica.Fence(); fence+tokenReserve/2 > g.noted.Token {
		batch.Token = fence + tokenReserve
	}
	if pruned := g.replica.Horizon().PrunedMillis; pruned > g.pruned {
		batch.PrunedMillis = pruned
	}
	due := position > g.noted.Index && (first || position >= g.noted.Index+noteEvery)
	if due || batch.Token > 0 || batch.PrunedMillis > 0 {
		if err := g.write(ctx, batch); err != nil {
			return err
		}
		g.pruned = max(g.pruned, batch.PrunedMillis)
	}
	g.mu.Lock()
	g.setDone(true, index)
	g.mu.Unlock()
	return nil
}

// write carries out one transaction of the group's leader.
func (g *group) write(ctx context.Context, batch postgres.Batch) error {
	batch.Leader, batch.After = g.leader, g.noted.Sequence
	ctx, cancel := context.WithTimeout(ctx, g.mirror.cfg.Timeout)
	defer cancel()
	start := time.Now()
	position, err := g.mirror.deps.Table.Write(ctx, batch)
	var back *postgres.BackError
	if errors.As(err, &back) {
		g.rewind(back.Found)
	}
	if err != nil {
		return err
	}
	g.mirror.metrics.seconds.Observe(time.Since(start).Seconds())
	if g.mirror.metrics.success(g.id) {
		g.mirror.log.Info("the database takes what is written again", "group", g.id)
	}
	g.noted = position
	return nil
}

// rewind notes that the database has lost what it had committed behind a position.
func (g *group) rewind(found postgres.Position) {
	g.mirror.log.Error("the database has lost rows that it had committed; they are written again", "group", g.id, "index", found.Index)
	g.noted, g.behind = found, true
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setDone(false, 0)
}
