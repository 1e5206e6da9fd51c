package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage/postgres"
)

// tokenReserve is how far the noted token is ahead of the greatest one given, so that it
// need not be noted with every lock.
const tokenReserve = 1 << 20

// group is one data group, as this node writes it while it leads it.
type group struct {
	mirror *Mirror
	id     uint32
	// wake asks for a transaction now; never closed.
	wake chan struct{}

	// The leadership is of run's goroutine only: who writes, the replica, the
	// position that the table has, up to when it is pruned, and when rejected rows are tried again.
	leader  postgres.Leader
	replica Replica
	noted   postgres.Position
	pruned  int64
	again   time.Time
	checked uint64 // Mirror.sessions when the table was last seen to have what was written
	// behind tells that the table may lack changes behind its position that are not noted.
	behind bool

	// mu protects the fields below.
	mu sync.Mutex
	// collecting tells that changes are noted.
	collecting bool
	// pending are the keys that changed and are not being written, with the index of the
	// latest change; writing is the number of those that are.
	pending map[fsm.Name]uint64
	writing int
	// rejected are keys whose rows the database refused, with the index of their first
	// change that is not in the table.
	rejected map[fsm.Name]uint64
	// serving tells that done holds: every change up to it is in the table, or rejected.
	serving bool
	done    uint64
	// moved is closed, and replaced, when done or serving changed.
	moved chan struct{}
}

func newGroup(m *Mirror, id uint32) *group {
	return &group{
		mirror: m, id: id, wake: make(chan struct{}, 1), moved: make(chan struct{}),
		pending: map[fsm.Name]uint64{}, rejected: map[fsm.Name]uint64{},
	}
}

// changed notes the keys of changes.
func (g *group) changed(c *fsm.Changes) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.collecting {
		return
	}
	for i := range c.List {
		if change := &c.List[i]; mirrored(change.Section) {
			g.pending[fsm.Name{Map: change.Map, Key: change.Key}] = change.Index
		}
	}
	if len(g.pending) >= g.mirror.cfg.BatchSize {
		g.hurry()
	}
}

// hurry asks for a transaction now.
func (g *group) hurry() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// counts are the keys that wait, and those that are refused.
func (g *group) counts() (pending, rejected int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.pending) + g.writing, len(g.rejected)
}

// counting reports whether changes are noted.
func (g *group) counting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.collecting
}

func (m *Mirror) rejected() int {
	n := 0
	for _, g := range m.all() {
		_, rejected := g.counts()
		n += rejected
	}
	return n
}

// run writes the group whenever this node leads it, until ctx ends.
func (g *group) run(ctx context.Context) {
	cfg := &g.mirror.cfg
	pause := cfg.RetryFirst
	for {
		wait := cfg.Poll
		term, leads := g.mirror.deps.Groups.Term(g.id)
		if !leads {
			g.mirror.metrics.forget(g.id)
		} else {
			err := g.lead(ctx, term)
			switch {
			case errors.Is(err, errNotYet), errors.Is(err, errLed):
				pause = cfg.RetryFirst
			case ctx.Err() == nil:
				g.mirror.failed(g.id, "the group is not written", g.explain(err))
				wait, pause = pause, min(2*pause, cfg.RetryLast)
			}
		}
		g.resign()
		if !sleep(ctx, wait, nil) {
			return
		}
	}
}

func (g *group) explain(err error) error {
	if state := g.mirror.deps.Cluster(); state != nil && state.Database != nil {
		return g.mirror.explain(state, err)
	}
	return err
}

// resign forgets what was noted as the leader: the next one finds it by the table.
func (g *group) resign() {
	g.mu.Lock()
	g.collecting, g.writing = false, 0
	clear(g.pending)
	clear(g.rejected)
	g.setDone(false, 0)
	g.mu.Unlock()
	g.mirror.signalRoom()
}

// setDone needs the lock.
func (g *group) setDone(serving bool, index uint64) {
	if g.serving == serving && g.done == index {
		return
	}
	g.serving, g.done = serving, index
	close(g.moved)
	g.moved = make(chan struct{})
}

// errLed ends a leadership.
var errLed = errors.New("another node leads the group")

// leads reports whether the leadership that began in the term of g.leader lasts.
func (g *group) leads() bool {
	term, leads := g.mirror.deps.Groups.Term(g.id)
	return leads && term == g.leader.Term
}

// lead writes the group for as long as this node leads it in term.
func (g *group) lead(ctx context.Context, term uint64) error {
	owner, err := g.mirror.owner()
	if err != nil {
		return err
	}
	replica, held := g.mirror.deps.Groups.Source(g.id)
	if !held {
		return errLed
	}
	g.leader, g.replica = postgres.Leader{Owner: owner, Group: g.id, Term: term}, replica
	g.behind, g.noted, g.pruned, g.again = true, postgres.Position{}, 0, time.Now().Add(g.mirror.cfg.RetryRejected)
	if replica.Adopted() {
		// From the beginning, so that what waits is counted while the database is away.
		g.collect()
	}
	if err := g.insist(ctx, func() error { return g.write(ctx, postgres.Batch{}) }); err != nil {
		return err
	}
	if !replica.Adopted() {
		if err := g.insist(ctx, func() error { return g.adopt(ctx) }); err != nil {
			return err
		}
		g.collect()
	}
	if err := g.insist(ctx, func() error { return g.catchUp(ctx) }); err != nil {
		return err
	}
	return g.follow(ctx)
}

// collect notes changes from now on, and lets proposers on who waited for that.
func (g *group) collect() {
	g.mu.Lock()
	g.collecting = true
	g.mu.Unlock()
	g.mirror.signalRoom()
}

// insist calls fn until it succeeds, this node does not lead any more, or ctx ends.
func (g *group) insist(ctx context.Context, fn func() error) error {
	cfg := &g.mirror.cfg
	for pause := cfg.RetryFirst; ; {
		if !g.leads() {
			return errLed
		}
		err := fn()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, postgres.ErrDeposed), errors.Is(err, errLed):
			return err
		}
		g.mirror.failed(g.id, "changes wait for the database", g.explain(err))
		if !postgres.Retry(err) {
			sleep(ctx, pause, nil)
			pause = min(2*pause, cfg.RetryLast)
		}
	}
}

// catchUp writes what the table lacks of the state: what changed behind its position.
// From then on the noted changes are all that is missing.
func (g *group) catchUp(ctx context.Context) error {
	through, since, written := g.replica.Published(), g.noted.Index, 0
	for place := (fsm.Place{}); !place.End; {
		var names []fsm.Name
		for len(names) < g.mirror.cfg.BatchSize && !place.End {
			some, next, err := g.replica.ChangedKeys(since, place, g.mirror.cfg.BatchSize-len(names))
			if err != nil {
				return fmt.Errorf("find what the table lacks: %w", err)
			}
			names, place = append(names, some...), next
		}
		if !g.leads() {
			return errLed
		}
		if err := g.writeNames(ctx, names, nil); err != nil {
			return err
		}
		written += len(names)
		// Those who write meanwhile are not held up for as long as it takes.
		if pending, _ := g.counts(); pending > g.mirror.cfg.Capacity/4 {
			if err := g.writeNoted(ctx); err != nil {
				return err
			}
		}
	}
	if err := g.finish(ctx, through); err != nil {
		return err
	}
	g.behind = false
	g.mirror.log.Debug("the table has caught up", "group", g.id, "since", since, "index", through, "keys", written)
	return nil
}

// follow writes what changes, until this node does not lead in the same term any more.
func (g *group) follow(ctx context.Context) error {
	for ctx.Err() == nil && g.leads() {
		err := g.insist(ctx, func() error { return g.flush(ctx) })
		if err != nil {
			return err
		}
		g.await(ctx)
	}
	return errLed
}

// await waits for the next transaction's time, and looks meanwhile whether this node
// still leads.
func (g *group) await(ctx context.Context) {
	cfg := &g.mirror.cfg
	for left := cfg.Interval; left > 0 && g.leads(); left -= cfg.Poll {
		timer := time.NewTimer(min(cfg.Poll, left))
		select {
		case <-g.wake:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// flush writes the noted changes, after what the database lost.
func (g *group) flush(ctx context.Context) error {
	if g.behind {
		return g.catchUp(ctx)
	}
	// Read first: the changes up to there are noted, or in the table.
	through := g.replica.Published()
	if sessions := g.mirror.sessions.Load(); sessions != g.checked {
		// A group that nobody writes to must notice a database that lost its rows too.
		if err := g.write(ctx, postgres.Batch{}); err != nil {
			return err
		}
		g.checked = sessions
	}
	if err := g.writeNoted(ctx); err != nil {
		return err
	}
	return g.finish(ctx, through)
}

// writeNoted writes the keys that were noted until now. What fails stays noted.
func (g *group) writeNoted(ctx context.Context) error {
	g.mu.Lock()
	if now := time.Now(); len(g.rejected) > 0 && now.After(g.again) {
		g.again = now.Add(g.mirror.cfg.RetryRejected)
		for name, index := range g.rejected {
			g.pending[name] = max(g.pending[name], index)
		}
	}
	batch := g.pending
	g.pending, g.writing = make(map[fsm.Name]uint64), len(batch)
	g.mu.Unlock()
	err := g.writeAll(ctx, batch)
	g.mu.Lock()
	for name, index := range batch {
		g.pending[name] = max(g.pending[name], index)
	}
	g.writing = 0
	g.mu.Unlock()
	g.mirror.signalRoom()
	return err
}

// writeAll writes the keys of batch, and takes them out of it.
func (g *group) writeAll(ctx context.Context, batch map[fsm.Name]uint64) error {
	names := make([]fsm.Name, 0, len(batch))
	for name := range maps.Keys(batch) {
		names = append(names, name)
	}
	sortNames(names)
	for len(names) > 0 {
		n := min(len(names), g.mirror.cfg.BatchSize)
		if err := g.writeNames(ctx, names[:n], batch); err != nil {
			return err
		}
		g.mu.Lock()
		for _, name := range names[:n] {
			delete(batch, name)
		}
		g.writing -= n
		g.mu.Unlock()
		g.mirror.signalRoom()
		names = names[n:]
	}
	return nil
}
