package ws

import (
	"context"
	"errors"
	"sync"
)

// errWithdrawn ends the wait of a request for a lock whose client does not want it any more.
var errWithdrawn = errors.New("the request was withdrawn")

// lockAsks are the requests for locks of one connection that have no outcome yet. The zero
// value is ready.
type lockAsks struct {
	// mu protects asks, by the ids of requests. Of several with one id the last counts.
	mu   sync.Mutex
	asks map[string]*lockAsk
}

type lockAsk struct {
	name string
	end  context.CancelCauseFunc
}

// enter returns the context of a request, which lives until withdraw, and what ends its entry.
func (l *lockAsks) enter(ctx context.Context, id, name string) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	a := &lockAsk{name: name, end: end}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asks == nil {
		l.asks = map[string]*lockAsk{}
	}
	l.asks[id] = a
	return ctx, func() {
		end(nil)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.asks[id] == a {
			delete(l.asks, id)
		}
	}
}

// withdraw ends the wait of a request, and reports whether there is one.
func (l *lockAsks) withdraw(id, name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.asks[id]
	if id == "" || a == nil || a.name != name {
		return false
	}
	a.end(errWithdrawn)
	return true
}
