package chaos

import (
	"context"
	"fmt"
	"sync"

	"github.com/quorate/quorate/protocol"
)

// counterFollower is told of the changes of a counter on one node, over new connections when
// it must.
type counterFollower struct {
	name   string
	caller *caller

	// mu protects total, the greatest that was shown on the present connection, and asked,
	// whether the connection is told of changes. A counter that is only added to never shows
	// less than before.
	mu    sync.Mutex
	total float64
	asked bool
}

func (f *counterFollower) run(ctx context.Context) {
	defer f.caller.hangUp()
	for ctx.Err() == nil {
		if !f.caller.connect(ctx) {
			continue
		}
		if !f.follow(ctx) {
			f.caller.hangUp()
			continue
		}
		f.caller.stay(ctx)
		f.begin(false)
	}
}

// follow asks for the counter on a new connection.
func (f *counterFollower) follow(ctx context.Context) bool {
	f.begin(false)
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	m, err := f.caller.conn.counter(asking, f.name)
	if err != nil {
		return false
	}
	f.show(m.(*protocol.CounterResponse).State)
	f.begin(true)
	return true
}

// begin notes whether there is a connection that is told of changes.
func (f *counterFollower) begin(asked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = asked
	if !asked {
		f.total = 0
	}
}

func (f *counterFollower) show(state protocol.CounterState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total = max(f.total, totalOf(state))
}

// take is shown what comes over the connection.
func (f *counterFollower) take(m protocol.Message) {
	if u, ok := m.(*protocol.CounterUpdate); ok && u.Name == f.name {
		f.show(u.State)
	}
}

// compare says how what the follower was shown differs from the total.
func (f *counterFollower) compare(total float64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.asked || f.total != total {
		return fmt.Errorf("the follower on %s was shown %v of %v (connected: %v)", f.caller.bound.Name, f.total, total, f.asked)
	}
	return nil
}
