package partitions

import (
	"container/heap"
	"context"
	"errors"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/query"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/partitions/remote"
	"github.com/quorate/quorate/protocol"
)

// Ask is what a client wants to see of a map.
type Ask struct {
	Map   string
	Query *Query
	// After is the place behind which rows count; nil for all.
	After *Place
	// Rows is how many rows are shown, Spare how many behind them are wanted too, for a
	// live window. Bytes is about how much all of them may take; one row always fits, and
	// those shown come first.
	Rows, Spare, Bytes int
	// Visible reports whether whoever asks may see a record; what is not visible is no row,
	// neither now nor when it changes. It is called often and at any later time. Nil shows
	// everything.
	Visible func(key string, value []byte) bool
	// Explain: the plan of the answer tells of all groups, not only of those held here.
	Explain bool
}

func (a *Ask) shows(key string, value []byte) bool { return a.Visible == nil || a.Visible(key, value) }

// Answer is the first rows of a query, in its order.
type Answer struct {
	// Rows are shown, Spare are the rows behind them. Their values are whole, whatever the
	// projection.
	Rows, Spare []Row
	// More says that there are rows behind Rows.
	More bool
	// Rest says that there are rows behind Spare.
	Rest bool
	// Index is the log index of each group's state that was read.
	Index map[uint32]uint64
	// Plan is how the rows were found.
	Plan Plan

	places []Place
	// visible is that of the ask.
	visible func(key string, value []byte) bool
}

// Place is where row i of Rows lies.
func (a *Answer) Place(i int) *Place { return &a.places[i] }

// Size is about how many bytes the rows take.
func (a *Answer) Size() int {
	size := 0
	for _, rows := range [][]Row{a.Rows, a.Spare} {
		for i := range rows {
			size += rows[i].Size()
		}
	}
	return size
}

// Cover tells sub what the answer contains; see Subscription.Covered.
func (a *Answer) Cover(sub *Subscription) {
	for group, index := range a.Index {
		sub.Covered(group, index)
	}
}

// Answer reads the first rows of a query. The states of the groups are not older than what
// s was acknowledged. It holds no more rows than the ask wants, however many there are. It
// blocks until the replicas are that far, or ctx ends. Errors: ErrUnavailable,
// ErrQueryTooCostly, ErrTooManyGroups, those of the state machine.
func (r *Router) Answer(ctx context.Context, s *Session, ask Ask) (*Answer, error) {
	g := NewGathering(ask, r.deps.Physical())
	err := r.scatter(ctx, s, func(group uint32, reader Reader) error {
		if far, elsewhere := reader.(*remote.Reader); elsewhere {
			return g.gatherFar(group, far, r.cfg.Remote.AnswerBytes)
		}
		index, err := r.gather(ctx, g, group, reader.(local).Replica)
		g.covered(group, index)
		return errors.Join(err, g.Err())
	})
	if err != nil {
		return nil, err
	}
	return g.Answer(), nil
}

// checkRecords is after how many records it is looked whether the answer is still wanted: the
// costliest take some milliseconds each.
const checkRecords = 16

// gather reads one group that is held here: by the only keys that rows can have, through an
// index, or by looking at all of its records.
func (r *Router) gather(ctx context.Context, g *Gathering, group uint32, replica Replica) (index uint64, err error) {
	seen := 0
	take := func(key string, rec protocol.Record) bool {
		if seen++; seen%checkRecords == 1 && ctx.Err() != nil {
			g.fail(ctx.Err())
			return false
		}
		return g.Add(key, rec)
	}
	defer g.arrive(inKeyOrder)
	if keys, only := g.ask.Query.Keys(); only {
		g.plan.Keyed++
		return r.gatherKeys(g.ask.Map, keys, group, replica, take)
	}
	seek := fsm.Seek{Map: g.ask.Map, Query: g.ask.Query, After: g.ask.After}
	if found, index, err := replica.Seek(seek, g.found, take); err != nil || found.ByIndex() {
		return index, err
	}
	g.plan.Scanned++
	return replica.Scan(g.ask.Map, g.from(), take)
}

// gatherKeys reads some keys of one group that is held here.
func (r *Router) gatherKeys(mapName string, keys []string, group uint32, replica Replica, take func(key string, rec protocol.Record) bool) (index uint64, err error) {
	index, _ = replica.Applied()
	for _, key := range keys {
		if placement.GroupOf(key, r.groups()) != group {
			continue
		}
		// A record may be of a later state than index: a change in between is delivered
		// again, which does no harm.
		rec, found, err := replica.Get(mapName, key)
		if err != nil {
			return index, err
		}
		if found && !take(key, rec) {
			break
		}
	}
	return index, nil
}

// Gathering collects the answer to an Ask from records. For one goroutine.
type Gathering struct {
	ask    Ask
	now    int64
	groups *query.Groups
	best   best
	index  map[uint32]uint64
	plan   Plan
	order  arrival
	err    error
}

// arrival is the order in which records come.
type arrival uint8

const (
	inKeyOrder  arrival = iota
	inRankOrder         // of the query's first sort field
	inAnyOrder
)

func (g *Gathering) arrive(order arrival) { g.order = order }

// found prepares for records that come from an index.
func (g *Gathering) found(f fsm.Found) {
	g.plan.found(f)
	if g.order = inAnyOrder; f.Ordered {
		g.order = inRankOrder
	}
}

// NewGathering returns an empty Gathering; now is the wall clock in milliseconds, which
// tells what has expired.
func NewGathering(ask Ask, now int64) *Gathering {
	g := &Gathering{ask: ask, now: now, index: map[uint32]uint64{}}
	g.best = best{query: ask.Query, rows: ask.Rows + ask.Spare, bytes: ask.Bytes}
	if ask.Query.Grouped() {
		g.groups = ask.Query.NewGroups(ask.Bytes)
	}
	return g
}

// from is the first key that can be in the answer.
func (g *Gathering) from() string {
	if g.ask.After == nil || g.ask.Query.Sorted() || g.groups != nil {
		return ""
	}
	return g.ask.After.Key + "\x00"
}

// covered notes that the state of group up to index was added.
func (g *Gathering) covered(group uint32, index uint64) { g.index[group] = index }

func (g *Gathering) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// Err is what keeps the answer from being right, nil if nothing does.
func (g *Gathering) Err() error { return g.err }

// Add looks at one record, and reports whether those that come after it may be of use, in
// the order of their keys unless an index shows them.
func (g *Gathering) Add(key string, rec protocol.Record) bool {
	g.plan.Candidates++
	if rec.IsTombstone() || rec.Expired(g.now) {
		return g.err == nil
	}
	matched, err := g.ask.Query.Match(key, rec.Value)
	switch {
	case err != nil:
		g.fail(err)
	case !matched || !g.ask.shows(key, rec.Value):
		return g.err == nil
	case g.groups != nil:
		g.plan.Matched++
		if err := g.groups.Add(key, rec.Value); err != nil {
			g.fail(err)
		}
	default:
		g.plan.Matched++
		return g.row(Row{Key: key, Record: rec})
	}
	return g.err == nil
}

// row offers a row, and reports whether those that come after it may be of use.
func (g *Gathering) row(row Row) bool {
	q := g.ask.Query
	place := q.Place(row.Key, row.Record.Value)
	if g.ask.After != nil && q.Compare(&place, g.ask.After) <= 0 {
		return true
	}
	last := !g.best.add(&ranked{row: row, place: place})
	switch g.order {
	case inKeyOrder:
		return !last || q.Sorted()
	case inRankOrder:
		return !last || !q.Passed(&place, g.best.cut)
	default:
		return true
	}
}

// Answer is what was gathered. It is called once.
func (g *Gathering) Answer() *Answer {
	if g.groups != nil {
		g.groups.Each(func(key string, value msgp.Raw) bool {
			g.row(Row{Key: key, Record: protocol.Record{Value: value}})
			return true
		})
	}
	list := g.best.list
	slices.SortFunc(list, func(a, b *ranked) int { return g.ask.Query.Compare(&a.place, &b.place) })
	a := &Answer{Rest: g.best.cut != nil, Index: g.index, Plan: g.plan, places: make([]Place, len(list)), visible: g.ask.Visible}
	rows := make([]Row, len(list))
	for i := range list {
		rows[i], a.places[i] = list[i].row, list[i].place
	}
	shown := min(len(rows), g.ask.Rows)
	a.Rows, a.Spare = rows[:shown:shown], rows[shown:]
	a.More = a.Rest || len(a.Spare) > 0
	return a
}

// ranked is a row with its place.
type ranked struct {
	row   Row
	place Place
}

func (r *ranked) size() int { return r.row.Size() + r.place.Size() }

// best holds the first rows of those that it was offered, within bounds: a heap with the
// last of them on top.
type best struct {
	query       *Query
	rows, bytes int
	list        []*ranked
	size        int
	// cut is the first place that was left out, nil if none was. No row from there on is
	// held, so that what is held is the beginning of the result.
	cut *Place
}

// add offers a row, and reports whether those behind it may be of use.
func (b *best) add(r *ranked) bool {
	if b.leavesOut(&r.place) {
		return false
	}
	heap.Push(b, r)
	b.size += r.size()
	for len(b.list) > b.rows || len(b.list) > 1 && b.size > b.bytes {
		b.cut = &b.pop().place
	}
	return !b.leavesOut(&r.place)
}

// pop takes the last row away.
func (b *best) pop() *ranked {
	last := heap.Pop(b).(*ranked)
	b.size -= last.size()
	return last
}

// Len implements heap.Interface.
func (b *best) Len() int { return len(b.list) }

// Less implements heap.Interface: the last row comes first.
func (b *best) Less(i, j int) bool { return b.query.Compare(&b.list[i].place, &b.list[j].place) > 0 }

// Swap implements heap.Interface.
func (b *best) Swap(i, j int) { b.list[i], b.list[j] = b.list[j], b.list[i] }

// Push implements heap.Interface.
func (b *best) Push(x any) { b.list = append(b.list, x.(*ranked)) }

// Pop implements heap.Interface.
func (b *best) Pop() any {
	last := len(b.list) - 1
	r := b.list[last]
	b.list[last] = nil
	b.list = b.list[:last]
	return r
}
