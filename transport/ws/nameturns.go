package ws

import (
	"sync"

	"github.com/quorate/quorate/protocol"
)

// nameTurns orders what a connection does with each lock, or with each counter: a request
// for a lock that overtook a release would be granted the hold that the release then
// ends. The zero value is ready.
type nameTurns struct {
	// mu protects the fields below. last is the newest turn of each name in use, and
	// waiting the number of messages for each purpose that are not answered.
	mu      sync.Mutex
	last    map[string]chan struct{}
	waiting [2]int
}

// purpose is how messages are counted.
type purpose int

const (
	// asking: what it asks for may be long in coming.
	asking purpose = iota
	// keeping: it ends or prolongs a hold, which others, and requests before it, wait for.
	keeping
)

// enter takes a turn: the caller begins when before is closed, and calls leave when the
// next one may. It returns false beyond limit messages of the purpose.
func (t *nameTurns) enter(name string, p purpose, limit int) (before <-chan struct{}, leave func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting[p] >= limit {
		return nil, nil, false
	}
	t.waiting[p]++
	if t.last == nil {
		t.last = map[string]chan struct{}{}
	}
	done := make(chan struct{})
	previous := t.last[name]
	t.last[name] = done
	return previous, func() {
		close(done)
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.last[name] == done {
			delete(t.last, name)
		}
	}, true
}

// answered ends the count of a message.
func (t *nameTurns) answered(p purpose) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[p]--
}

// inTurn runs task beside the reader when what the connection did before with the name is
// in the log. task calls leave when that is true of its own doing; its end counts, too. It
// returns false if there is no room for the message, which is refused then.
func (c *conn) inTurn(t *nameTurns, m protocol.Message, name string, p purpose, task func(leave func())) bool {
	before, leave, ok := t.enter(name, p, c.srv.cfg.MaxRequests)
	if !ok {
		c.srv.metrics.limit("requests")
		c.reply(failureOf(m, protocol.CodeOverloaded, "too many requests at once"))
		return false
	}
	c.tasks.Add(1)
	c.srv.workers.Go(func() {
		defer c.tasks.Done()
		defer t.answered(p)
		leave := sync.OnceFunc(leave)
		defer leave()
		await(before)
		task(leave)
	})
	return true
}
