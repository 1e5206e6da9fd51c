package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/partitions/locks"
)

const (
	lockName    = "the-lock"
	counterName = "the-counter"
	// lockers fight for the lock, and add to the counter in between.
	lockers = 4
	// shortestLease is how long a lease lasts at least.
	shortestLease = 10 * time.Second
	// longestHold is how long a locker keeps the lock at most: less than the shortest
	// lease without the time that it may have waited, and than the silence after which a
	// gateway has lost its sessions.
	longestHold = 2 * time.Second
)

// guard is what clients know of the lock and of the counter. It is safe for concurrent use.
type guard struct {
	mu       sync.Mutex
	holder   string
	greatest uint64
	grants   int
	// totals are those that additions returned; maybe are additions without an outcome.
	totals map[float64]bool
	maybe  int
}

// enter notes that a client was told that it holds the lock.
func (g *guard) enter(w *world, who string, token uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holder != "" {
		w.problem("%s gets the lock while %s holds it", who, g.holder)
	}
	if token <= g.greatest {
		w.problem("%s gets token %d after %d", who, token, g.greatest)
	}
	g.holder, g.greatest = who, token
	g.grants++
}

// leave notes that the client does not rely on the lock any more.
func (g *guard) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holder = ""
}

// startLockers starts clients of the lock and the counter until stop is closed.
func (w *world) startLockers() {
	for i := range lockers {
		w.clients++
		c := &client{w: w, name: fmt.Sprintf("locker%d-%d", w.clients, i), rng: rand.New(rand.NewPCG(w.seed, uint64(1000+w.clients)))}
		w.busy.Go(c.fight)
	}
}

func (c *client) fight() {
	defer c.hangUp()
	for {
		select {
		case <-c.w.stop:
			return
		case <-time.After(c.rest(5)):
		}
		if c.life == nil || c.life.dead.Load() || c.rng.IntN(10) == 0 {
			c.hangUp()
			c.reconnect()
		}
		switch {
		case c.life == nil:
		case c.rng.IntN(3) == 0:
			c.add()
		default:
			c.takeLock()
		}
	}
}

// hangUp ends the connection, as a node sees it.
func (c *client) hangUp() {
	if c.life == nil || c.life.dead.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.life.node.Router().EndSession(ctx, c.sess)
}

// takeLock takes the lock, keeps it for a while and releases it, or not.
func (c *client) takeLock() {
	ask := locks.Ask{Name: lockName, Patience: time.Duration(1+c.rng.IntN(8)) * time.Second}
	asked := time.Now()
	if c.rng.IntN(2) == 0 {
		ask.TTLMillis = shortestLease.Milliseconds()
	}
	ctx, cancel := context.WithTimeout(context.Background(), ask.Patience)
	defer cancel()
	life, router := c.life, c.life.node.Router()
	token, err := router.AcquireLock(ctx, c.sess, ask)
	if err != nil || life.dead.Load() {
		return // who hears nothing holds nothing
	}
	c.w.guard.enter(c.w, c.name, token)
	pause(time.Duration(c.rng.IntN(int(longestHold/time.Millisecond))) * time.Millisecond)
	c.w.guard.leave()
	if life.dead.Load() || c.rng.IntN(8) == 0 {
		c.hangUp() // what it holds is released with its connection
		c.reconnect()
		return
	}
	release, end := context.WithTimeout(context.Background(), 5*time.Second)
	defer end()
	released, reason, err := router.ReleaseLock(release, c.sess, lockName, token)
	switch {
	case err != nil || life.dead.Load():
		c.hangUp() // it may hold the lock still, and would be given the same token
		c.reconnect()
	case !released && (ask.TTLMillis == 0 || time.Since(asked) < shortestLease):
		// A lease begins when it is asked for at the earliest; news of it may come late.
		c.w.problem("%s could not release token %d: %s", c.name, token, reason)
	}
}

// add adds one to the counter, up to three times until the outcome is known: it must count
// once.
func (c *client) add() {
	c.next++
	id := fmt.Sprint(c.name, "/", c.next)
	unknown := false
	for range 3 {
		if c.life == nil {
			break
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		total, refusal, err := c.life.node.Router().AddToCounter(ctx, c.sess, counterName, 1, id)
		cancel()
		if c.life.dead.Load() {
			err = errNeverHeard
		}
		if err == nil && !refusal.Refused() {
			c.w.guard.added(c.w, id, total)
			return
		}
		unknown = unknown || !errors.Is(err, partitions.ErrUnavailable)
		c.hangUp()
		c.reconnect()
	}
	if unknown {
		c.w.guard.mu.Lock()
		defer c.w.guard.mu.Unlock()
		c.w.guard.maybe++
	}
}

// added notes the total that an addition returned: no two are equal.
func (g *guard) added(w *world, id string, total float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.totals == nil {
		g.totals = map[float64]bool{}
	}
	if g.totals[total] {
		w.problem("%s makes the total %v, and so did another", id, total)
	}
	g.totals[total] = true
}

// checkLocks holds that the lock comes free, and that every node's total is that of the
// additions.
func (w *world) checkLocks() {
	// A node that ended holds it until it was silent for 30 s, and leaderships that move to
	// the preferred nodes after the heal begin that anew.
	began := time.Now()
	free := w.eventually(100*time.Second, "the lock comes free", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r := w.running()[0].node.Router()
		s := r.NewSession()
		defer r.EndSession(ctx, s)
		_, err := r.AcquireLock(ctx, s, locks.Ask{Name: lockName, Patience: 5 * time.Second})
		return err
	})
	w.note("the lock came free after %s: %v", time.Since(began), free)
	w.describeLock()
	w.guard.mu.Lock()
	defer w.guard.mu.Unlock()
	least, most := float64(len(w.guard.totals)), float64(len(w.guard.totals)+w.guard.maybe)
	for _, l := range w.running() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		r := l.node.Router()
		s := r.NewSession()
		err := r.Barrier(ctx, s)
		state, readErr := r.Counter(ctx, s, counterName)
		cancel()
		total := 0.0
		for _, v := range state.Positive {
			total += v
		}
		if err := errors.Join(err, readErr); err != nil || total < least || total > most {
			w.problem("%s has the total %v of %v to %v additions: %v", l.machine.name, total, least, most, err)
		}
	}
}

// lockReader is the part of a state machine that knows locks.
type lockReader interface {
	Lock(name string) *lock.Lock
	Gateways() map[string]uint64
}

// describeLock adds what the replicas know of the lock to the schedule.
func (w *world) describeLock() {
	for _, l := range w.running() {
		for _, g := range l.node.Host().Groups() {
			m, ok := g.Machine().(lockReader)
			if !ok || m.Lock(lockName) == nil {
				continue
			}
			now := g.Leadership()
			w.note("%s: group %d is led by %s in term %d, the lock is %+v, gateways %v", l.machine.name, g.ID(), now.Leader, now.Term, m.Lock(lockName), m.Gateways())
		}
	}
}
