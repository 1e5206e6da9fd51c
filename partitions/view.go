package partitions

import (
	"errors"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// Change is how one row of a live query moved.
type Change struct {
	Type protocol.ChangeType
	Key  string
	// Value is the whole value of the row; empty for protocol.ChangeLeave.
	Value msgp.Raw
}

const (
	// viewValueBytes is how many bytes of values a window keeps, so that a row can be shown
	// when another one leaves.
	viewValueBytes = 256 << 10
	// minSpare and maxSpare bound the rows behind a window that it keeps.
	minSpare, maxSpare = 16, 256
	// viewBacklog bounds the events that wait while the rows of a window are read.
	viewBacklog = 4096
)

// ErrBehind says that too many changes came while the rows of a window were read; its client
// must be shown everything anew.
var ErrBehind = errors.New("too many changes while rows are read")

// Spare is how many rows behind a window of limit rows are worth reading.
func Spare(limit int) int {
	if limit <= 0 {
		return 0
	}
	return min(max(limit, minSpare), maxSpare)
}

// View is the result of a live query as its client holds it, and turns the changes of the
// map into changes of the result. A query without limit needs no rows for that: whether a
// record was in the result is seen by its old value. One with a limit is a window: the
// first rows by order, with the rows behind them as far as they are known. When rows that
// are not known come into the window, it has to be refilled.
//
// A View does no I/O and knows no clock. For one goroutine.
type View struct {
	query *Query
	after *Place
	limit int
	spare int
	// visible tells which records the client may see; nil shows everything.
	visible func(key string, value []byte) bool
	// seen is the log index of each group that a refill has shown already.
	seen map[uint32]uint64
	// rows are the first rows of the result, in order, and byKey the same; complete says
	// that there are no others. Of no use without limit.
	rows     []*viewRow
	byKey    map[string]*viewRow
	complete bool
	// bytes is what the values kept take, size what all of the rows take.
	bytes, size int
	// filling: a refill is under way, and backlog waits for it.
	filling bool
	backlog []viewEvent
}

type viewRow struct {
	place Place
	stamp protocol.Timestamp
	// value is nil if there was no room to keep it.
	value msgp.Raw
	// shown: the client has it.
	shown bool
}

type viewEvent struct {
	*Event
	own bool
}

// NewView returns the view of a client that is shown the rows of answer, of which spare
// are the ones behind. after is the place behind which rows count, nil for all.
func NewView(q *Query, after *Place, answer *Answer) *View {
	v := &View{query: q, after: after, limit: q.Limit(), spare: Spare(q.Limit()), visible: answer.visible}
	if v.windowed() {
		v.fill(answer)
	}
	return v
}

// windowed reports whether the view holds rows.
func (v *View) windowed() bool { return v.limit > 0 && !v.query.Grouped() }

// WantsOwn reports whether Apply has to see also what the client itself wrote.
func (v *View) WantsOwn() bool { return v.windowed() }

// Limit is the number of rows of the window.
func (v *View) Limit() int { return v.limit }

// Size is about how many bytes the view takes.
func (v *View) Size() int { return v.size }

// viewRowBytes is what a row takes beside its place and its value.
const viewRowBytes = 160

// fill takes the rows of an answer. A window that does not fit into one becomes smaller.
func (v *View) fill(a *Answer) {
	if a.More && len(a.Rows) < v.limit {
		v.limit = max(1, len(a.Rows))
	}
	rows := slices.Concat(a.Rows, a.Spare)
	v.rows, v.byKey, v.bytes, v.size = make([]*viewRow, len(rows)), make(map[string]*viewRow, len(rows)), 0, 0
	v.complete = !a.Rest
	// From the end, so that room is spent on the values of rows that may have to be shown.
	for i := len(rows) - 1; i >= 0; i-- {
		row := &viewRow{place: a.places[i], stamp: rows[i].Record.Timestamp, shown: i < v.limit}
		v.keep(row, rows[i].Record.Value)
		v.rows[i] = row
		v.byKey[row.place.Key] = row
	}
	v.trim()
}

// keep counts a row that comes in, and has it hold its value if there is room.
func (v *View) keep(row *viewRow, value msgp.Raw) {
	v.size += viewRowBytes + row.place.Size()
	if v.bytes+len(value) <= viewValueBytes {
		row.value = slices.Clone(value) // not the record around it
		v.bytes += len(value)
		v.size += len(value)
	}
}

// forget is the opposite of keep.
func (v *View) forget(row *viewRow) {
	delete(v.byKey, row.place.Key)
	v.bytes -= len(row.value)
	v.size -= viewRowBytes + row.place.Size() + len(row.value)
}

// Apply appends what e, at a time in milliseconds, means for the client to changes: what
// leaves, then what enters, then what stays. own says that the client itself made the
// change; it moves the window and is not shown. After refill is true the caller reads the
// first rows again and calls Refill; Apply may be called in between. Errors: ErrBehind,
// ErrQueryTooCostly; the view is of no use then.
func (v *View) Apply(e *Event, own bool, now int64, changes []Change) (out []Change, refill bool, err error) {
	if e.Added != nil || e.Removed != "" || v.query.Grouped() || v.limit == 0 || e.Index <= v.seen[e.Group] {
		return changes, false, nil
	}
	if v.filling {
		if len(v.backlog) == viewBacklog {
			return changes, false, ErrBehind
		}
		v.backlog = append(v.backlog, viewEvent{e, own})
		return changes, false, nil
	}
	if !v.windowed() {
		if !own {
			changes, err = v.pass(e, now, changes)
		}
		return changes, false, err
	}
	is, err := v.admits(e, now)
	if err != nil {
		return changes, false, err
	}
	shown := len(changes)
	changes, v.filling = v.move(e, is, changes)
	if own {
		changes = changes[:shown]
	}
	return changes, v.filling, nil
}

// admits reports whether the record of e is a row.
func (v *View) admits(e *Event, now int64) (bool, error) {
	if e.Record.IsTombstone() || e.Record.Expired(now) {
		return false, nil
	}
	return v.match(e.Key, e.Record.Value)
}

// match reports whether a record is in the result for the client.
func (v *View) match(key string, value msgp.Raw) (bool, error) {
	matched, err := v.query.Match(key, value)
	return matched && (v.visible == nil || v.visible(key, value)), err
}

// pass is Apply for a query without limit.
func (v *View) pass(e *Event, now int64, changes []Change) ([]Change, error) {
	is, err := v.admits(e, now)
	if err != nil {
		return changes, err
	}
	was := e.Existed
	if was {
		if was, err = v.match(e.Key, e.Old); err != nil {
			return changes, err
		}
	}
	if v.after != nil {
		is, was = is && v.behind(e.Key, e.Record.Value), was && (!is || v.behind(e.Key, e.Old))
	}
	switch {
	case is && was:
		return append(changes, Change{protocol.ChangeUpdate, e.Key, e.Record.Value}), nil
	case is:
		return append(changes, Change{protocol.ChangeEnter, e.Key, e.Record.Value}), nil
	case was:
		return append(changes, Change{Type: protocol.ChangeLeave, Key: e.Key}), nil
	default:
		return changes, nil
	}
}

// behind reports whether a record lies behind the cursor.
func (v *View) behind(key string, value msgp.Raw) bool {
	place := v.query.Place(key, value)
	return v.query.Compare(&place, v.after) > 0
}

// move moves the window on: is says whether the record of e is a row now.
func (v *View) move(e *Event, is bool, changes []Change) (out []Change, refill bool) {
	row := &viewRow{place: Place{Key: e.Key}}
	if is {
		row = &viewRow{place: v.query.Place(e.Key, e.Record.Value), stamp: e.Record.Timestamp}
		is = v.after == nil || v.query.Compare(&row.place, v.after) > 0
	}
	wasShown := v.remove(e.Key)
	if is {
		v.insert(row, e.Record.Value)
	}
	// What is shown now, as against before: one row more or less, on either side.
	var leaves, enters *viewRow
	if len(v.rows) > v.limit && v.rows[v.limit].shown {
		leaves = v.rows[v.limit]
		leaves.shown = false
	}
	stays := v.shows(e.Key)
	if wasShown && !stays {
		changes = append(changes, Change{Type: protocol.ChangeLeave, Key: e.Key})
	}
	if leaves != nil {
		changes = append(changes, Change{Type: protocol.ChangeLeave, Key: leaves.place.Key})
	}
	if last := min(len(v.rows), v.limit) - 1; last >= 0 && !v.rows[last].shown && v.rows[last].place.Key != e.Key {
		enters = v.rows[last]
	}
	switch {
	case enters != nil && enters.value == nil:
		refill = true
	case enters != nil:
		enters.shown = true
		changes = append(changes, Change{protocol.ChangeEnter, enters.place.Key, enters.value})
	}
	if stays {
		row.shown = true
		kind := protocol.ChangeEnter
		if wasShown {
			kind = protocol.ChangeUpdate
		}
		changes = append(changes, Change{kind, e.Key, e.Record.Value})
	}
	v.trim()
	return changes, refill || !v.complete && len(v.rows) < v.limit
}

// shows reports whether the row of a key is in the window.
func (v *View) shows(key string) bool {
	row := v.byKey[key]
	if row == nil {
		return false
	}
	return len(v.rows) <= v.limit || v.query.Compare(&row.place, &v.rows[v.limit].place) < 0
}

// remove takes the row of a key away and reports whether its client has it.
func (v *View) remove(key string) (shown bool) {
	row := v.byKey[key]
	if row == nil {
		return false
	}
	v.forget(row)
	i, _ := v.search(&row.place)
	v.rows = slices.Delete(v.rows, i, i+1)
	return row.shown
}

// insert puts a row in its place, unless that may lie behind rows that are not known.
func (v *View) insert(row *viewRow, value msgp.Raw) {
	i, _ := v.search(&row.place)
	if i == len(v.rows) && !v.complete {
		return
	}
	v.keep(row, value)
	v.rows = slices.Insert(v.rows, i, row)
	v.byKey[row.place.Key] = row
}

func (v *View) search(place *Place) (int, bool) {
	return slices.BinarySearchFunc(v.rows, place, func(row *viewRow, place *Place) int { return v.query.Compare(&row.place, place) })
}

// trim forgets what lies too far behind the window, or has no value.
func (v *View) trim() {
	for n := len(v.rows); n > v.limit+v.spare || n > v.limit && v.rows[n-1].value == nil; n-- {
		v.forget(v.rows[n-1])
		v.rows[n-1] = nil
		v.rows = v.rows[:n-1]
		v.complete = false
	}
}

// Refill takes the first rows, read after Apply asked for it, with the view's Limit, and
// appends what they mean for the client to changes; then as Apply.
func (v *View) Refill(a *Answer, now int64, changes []Change) (out []Change, refill bool, err error) {
	before := v.byKey
	v.fill(a)
	for key, row := range before {
		if row.shown && !v.shows(key) {
			changes = append(changes, Change{Type: protocol.ChangeLeave, Key: key})
		}
	}
	var updates []Change
	for _, row := range a.Rows[:min(len(a.Rows), v.limit)] {
		old := before[row.Key]
		switch {
		case old == nil || !old.shown:
			changes = append(changes, Change{protocol.ChangeEnter, row.Key, row.Record.Value})
		case old.stamp != row.Record.Timestamp:
			updates = append(updates, Change{protocol.ChangeUpdate, row.Key, row.Record.Value})
		}
	}
	changes = append(changes, updates...)
	v.seen, v.filling = a.Index, false
	// What came meanwhile may ask for another refill; the rest of it waits for that.
	backlog := v.backlog
	v.backlog = nil
	for _, e := range backlog {
		var again bool
		if changes, again, err = v.Apply(e.Event, e.own, now, changes); err != nil {
			return changes, false, err
		}
		refill = refill || again
	}
	return changes, refill, nil
}
