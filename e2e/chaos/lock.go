package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/e2e/chaos/check"
	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// held is a lock that a client was granted.
type held struct {
	name  string
	token uint64
	conn  *conn // of the grant
	until int64
}

// fenced is a write in protection of the lock, ordered by the server.
func (h *held) fenced(mapName, key, value string) protocol.ClientOp {
	op := harness.Put("", mapName, key, value, protocol.Timestamp{})
	op.Fence = &protocol.Fence{Lock: h.name, Token: h.token}
	return op
}

// acquire takes a lock, with a lease of ttl milliseconds, and waits for it for as long as
// wait. A client that gets no answer gives its connection up, and with it what it may hold.
func (c *caller) acquire(ctx context.Context, name string, ttl, wait int64) (*held, bool) {
	if !c.connect(ctx) {
		return nil, false
	}
	asking, cancel := context.WithTimeout(ctx, time.Duration(wait)*time.Millisecond+askTime)
	defer cancel()
	called, id := c.load.round.run.now(), c.nextID()
	request := &protocol.LockRequest{RequestID: id, Name: name, TTLMillis: &ttl, WaitMillis: &wait}
	m, err := c.conn.ask(asking, request, func(m protocol.Message) bool {
		switch m := m.(type) {
		case *protocol.LockGranted:
			return m.RequestID == id
		case *protocol.LockReleased: // a refusal names no request
			return m.RequestID == "" && m.Name == name
		default:
			return false
		}
	})
	granted, ok := m.(*protocol.LockGranted)
	if !ok {
		if err != nil {
			c.giveUp(ctx)
		}
		return nil, false
	}
	return &held{name: name, token: granted.FencingToken, conn: c.conn, until: called + ttl*int64(time.Millisecond)}, true
}

// release gives a lock back, if the connection of its grant is still there, and notes how
// that went.
func (c *caller) release(ctx context.Context, l *held, note func(op check.Op)) {
	if c.conn != l.conn || l.conn == nil {
		return
	}
	op := c.begin(check.Release, l.name, "")
	op.Token, op.Outcome = l.token, check.Unknown
	id := c.nextID()
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	m, err := l.conn.ask(asking, &protocol.LockRelease{RequestID: id, Name: l.name, FencingToken: l.token}, func(m protocol.Message) bool {
		r, ok := m.(*protocol.LockReleased)
		return ok && r.RequestID == id
	})
	op.Return, op.Session, op.Node = c.load.round.run.now(), c.session, c.node()
	if err != nil {
		note(op)
		c.giveUp(ctx)
		return
	}
	op.Outcome = check.OK
	if !m.(*protocol.LockReleased).Success {
		op.Outcome, op.Refused = check.Failed, true
	}
	note(op)
}

// renew begins the lease anew. An answer that does not come decides nothing.
func (c *caller) renew(ctx context.Context, l *held, ttl int64) {
	if c.conn != l.conn || l.conn == nil {
		return
	}
	op := c.begin(check.Renew, l.name, "")
	op.Token, op.Until = l.token, op.Call+ttl*int64(time.Millisecond)
	id := c.nextID()
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	request := &protocol.LockRequest{RequestID: id, Name: l.name, TTLMillis: &ttl, FencingToken: &l.token}
	m, err := l.conn.ask(asking, request, func(m protocol.Message) bool {
		switch m := m.(type) {
		case *protocol.LockGranted:
			return m.RequestID == id
		case *protocol.LockReleased:
			return m.RequestID == id
		default:
			return false
		}
	})
	switch m.(type) {
	case *protocol.LockGranted:
		op.Outcome, l.until = check.OK, op.Until
	case *protocol.LockReleased:
		op.Outcome, op.Refused, op.Until = check.Failed, true, 0
	default:
		op.Outcome = check.Unknown
	}
	c.end(op)
	if err != nil {
		c.giveUp(ctx)
	}
}

// locks fights for a few locks and writes in their protection, sometimes with a token of
// long ago.
type locks struct {
	*load
	resources string
	// names are the locks, of one group, so that the end of a connection which holds both is
	// one command.
	names []string
	// far are keys by lock that belong to other groups than it.
	far map[string]string
}

// lockNames is the number of locks that clients fight for.
const lockNames = 2

func newLocks(l *load) workload {
	w := &locks{load: l, resources: l.mapCalled("resources", false), far: make(map[string]string)}
	for i := 0; len(w.names) < lockNames; i++ {
		name := l.called(fmt.Sprint("l", i))
		if len(w.names) == 0 || groupOf(name) == groupOf(w.names[0]) {
			w.names = append(w.names, name)
		}
	}
	for _, name := range w.names {
		for i := 0; w.far[name] == ""; i++ {
			if key := fmt.Sprint(name, ".far", i); groupOf(key) != groupOf(name) {
				w.far[name] = key
			}
		}
	}
	return w
}

// resource is a key that the lock protects: in its own group or, for those that clients fight
// for, in another one.
func (w *locks) resource(c *caller, name string) string {
	if far := w.far[name]; far != "" && c.rng.IntN(2) == 0 {
		return far
	}
	return name
}

// groupOf is the group that owns a name.
func groupOf(name string) uint32 { return 1 + protocol.Partition(name)%groups }

func (w *locks) start(busy, _ context.Context) {
	for range 4 {
		var former *held
		w.each(busy, 1, func(ctx context.Context, c *caller) {
			switch n := c.rng.IntN(6); {
			case n == 0 && former != nil:
				w.write(ctx, c, former)
			case n <= 1:
				c.read(ctx, check.Read, w.resources)
			default:
				if l := w.hold(ctx, c); l != nil {
					former = l
				}
			}
		})
	}
	w.through(busy, func(ctx context.Context, c *caller, api *client.Client) {
		w.occupy(ctx, c, api, w.names[c.rng.IntN(lockNames)])
	})
}

// hold takes a lock, uses it and gives it back, or loses its connection.
func (w *locks) hold(ctx context.Context, c *caller) *held {
	i := c.rng.IntN(lockNames)
	name := w.names[i]
	l, ok := w.take(ctx, c, name, int64(1000+c.rng.IntN(5000)))
	if !ok {
		return nil
	}
	for c.rng.IntN(3) > 0 {
		w.write(ctx, c, l)
		c.rest(ctx, 200*time.Millisecond)
	}
	if c.rng.IntN(4) == 0 {
		c.renew(ctx, l, w.lease(c))
	}
	switch c.rng.IntN(12) {
	case 0:
		c.hangUp()
	case 1, 2:
		w.take(ctx, c, w.names[(i+1)%lockNames], 3000)
		c.read(ctx, check.Read, w.resources)
		c.hangUp() // both locks end with the connection
	default:
		c.release(ctx, l, w.note)
	}
	return l
}

// take takes a lock and notes it.
func (w *locks) take(ctx context.Context, c *caller, name string, wait int64) (*held, bool) {
	op := c.begin(check.Acquire, name, "")
	l, ok := c.acquire(ctx, name, w.lease(c), wait)
	if ok {
		op.Token, op.Until, op.Outcome = l.token, l.until, check.OK
		c.end(op)
	}
	return l, ok
}

// lease is a lease in milliseconds, shorter than the silence after which a node loses its
// sessions.
func (w *locks) lease(c *caller) int64 { return int64(1000 + c.rng.IntN(3000)) }

// write writes to the resource of the lock.
func (w *locks) write(ctx context.Context, c *caller, l *held) {
	op := c.begin(check.Fenced, l.name, c.value())
	op.Token, op.Resource = l.token, w.resource(c, l.name)
	c.submit(ctx, &op, l.fenced(w.resources, op.Resource, op.Value))
	c.end(op)
}

func (w *locks) quiet(ctx context.Context) error {
	for _, name := range w.names {
		if err := w.comesFree(ctx, name); err != nil && ctx.Err() == nil {
			w.round.problem("lock: %s does not come free: %v", name, err)
		}
		if err := w.handedOver(ctx, name); err != nil && ctx.Err() == nil {
			w.round.problem("lock: %s is not handed over: %v", name, err)
		}
	}
	if err := w.renewed(ctx, w.names[0]); err != nil && ctx.Err() == nil {
		w.round.problem("lock: the Go client does not keep %s: %v", w.names[0], err)
	}
	return w.finals(ctx, readAll(w.resources))
}

// comesFree takes a lock once more, when all that held it have gone.
func (w *locks) comesFree(ctx context.Context, name string) error {
	c := w.caller(nil)
	defer c.hangUp()
	return until(ctx, stuckTime, func() error {
		op := c.begin(check.Acquire, name, "")
		l, ok := c.acquire(ctx, name, 5000, 5000)
		if !ok {
			return fmt.Errorf("%s is not granted", name)
		}
		op.Token, op.Until, op.Outcome = l.token, l.until, check.OK
		c.end(op)
		c.release(ctx, l, w.note)
		return nil
	})
}

// handedOver has a client wait for a lock that another one holds, and wants it to be granted
// when that one releases it. Connections may still break, so one of a few attempts counts.
func (w *locks) handedOver(ctx context.Context, name string) error {
	const attempts, patience = 4, 20_000
	first, second := w.caller(nil), w.caller(nil)
	defer first.hangUp()
	defer second.hangUp()
	for range attempts {
		l, ok := first.acquire(ctx, name, 3*patience, patience)
		if !ok {
			continue
		}
		granted := make(chan bool)
		go func() {
			next, ok := second.acquire(ctx, name, 3*patience, patience)
			if ok {
				second.release(ctx, next, w.note)
			}
			granted <- ok
		}()
		calm(ctx, time.Second) // nobody is told that the second one waits
		first.release(ctx, l, w.note)
		if <-granted {
			return nil
		}
		first.hangUp()
	}
	return fmt.Errorf("a waiting client was not granted it within %d s, in %d attempts", patience/1000, attempts)
}

func (w *locks) judge(ops []check.Op) []string { return check.Locks(ops) }
