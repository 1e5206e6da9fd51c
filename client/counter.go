package client

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/quorate/quorate/protocol"
)

// Counter is a named number that many add to.
type Counter struct {
	client *Client
	name   string
}

// Counter returns the counter with a name. It asks the server nothing.
func (c *Client) Counter(name string) *Counter { return &Counter{client: c, name: name} }

// Name is the counter's name.
func (n *Counter) Name() string { return n.name }

// Add adds delta, which may be negative, once, and returns the total right after it. Additions
// are linearizable; Add(ctx, 0) is a linearizable read. It is repeated over new connections
// under one id until it is decided or time is up.
func (n *Counter) Add(ctx context.Context, delta float64) (total float64, err error) {
	if math.IsNaN(delta) || math.IsInf(delta, 0) {
		return 0, fmt.Errorf("counter %q: %w", n.name, refused(protocol.CodeMalformed, "delta is not a finite number"))
	}
	c := n.client
	k := c.newCall(protocol.KindCounterSync, n.name, func(id string) protocol.Message {
		return &protocol.CounterSync{Name: n.name, Add: &delta, RequestID: id, Once: true}
	})
	k.again, k.changes = true, true
	answer, err := c.do(ctx, k)
	if err != nil {
		return 0, fmt.Errorf("counter %q: %w", n.name, err)
	}
	m := answer.(*protocol.CounterResponse)
	if m.Value == nil {
		return sum(m.State), nil
	}
	return *m.Value, nil
}

// Value reads the total. It is never older than what was acknowledged on the present
// connection, but possibly older than what others were told; Add(ctx, 0) is not.
func (n *Counter) Value(ctx context.Context) (float64, error) {
	// To follow what is read once would take one of the places that a connection has for counters.
	return n.ask(ctx, &protocol.CounterRequest{Name: n.name, Once: true})
}

// ask sends a request for the counter, and returns the total of its answer.
func (n *Counter) ask(ctx context.Context, m *protocol.CounterRequest) (float64, error) {
	c := n.client
	k := c.newCall(protocol.KindCounterRequest, n.name, func(string) protocol.Message { return m })
	k.again = true
	answer, err := c.do(ctx, k)
	if err != nil {
		return 0, fmt.Errorf("counter %q: %w", n.name, err)
	}
	return sum(answer.(*protocol.CounterResponse).State), nil
}

// CounterWatch shows the totals of a counter.
type CounterWatch struct {
	client *Client
	name   string
	in     inbox[float64]
	// latest is the total that was shown last, if one was; both under Client.mu.
	latest float64
	shown  bool
}

// Watch shows the total, and again after changes: a consumer that is slow sees the latest
// only, and none sees an earlier one again before a new connection. Close it when it is not needed any more.
func (n *Counter) Watch(ctx context.Context) (*CounterWatch, error) {
	c := n.client
	w := &CounterWatch{client: c, name: n.name, in: newInbox[float64]()}
	c.mu.Lock()
	if err := c.final; err != nil {
		c.mu.Unlock()
		return nil, err
	}
	if c.watches[n.name] == nil {
		c.watches[n.name] = map[*CounterWatch]struct{}{}
	}
	c.watches[n.name][w] = struct{}{}
	c.mu.Unlock()
	if _, err := n.ask(ctx, &protocol.CounterRequest{Name: n.name}); err != nil { // the answer reaches w, too
		w.Close()
		return nil, err
	}
	return w, nil
}

// Next waits until the total is another than the one it last returned, and returns it. When
// the watch has ended the error says why: ErrClosed, or ErrRefused if the server did not allow
// it on a new connection.
func (w *CounterWatch) Next(ctx context.Context) (float64, error) {
	return w.in.next(ctx, w.client, nil)
}

// All iterates over the totals until the watch or ctx ends; the error that ended it comes
// last.
func (w *CounterWatch) All(ctx context.Context) iter.Seq2[float64, error] { return all(ctx, w.Next) }

// Close ends the watch. Calling it again does nothing.
func (w *CounterWatch) Close() {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	if _, open := w.client.watches[w.name][w]; open {
		if delete(w.client.watches[w.name], w); len(w.client.watches[w.name]) == 0 {
			delete(w.client.watches, w.name)
			w.client.unresumeLocked(protocol.KindCounterRequest, w.name)
			if cn := w.client.conn; cn != nil {
				delete(cn.counters, w.name)
				cn.postLocked(&protocol.CounterRequest{Name: w.name, Unfollow: true})
			}
		}
	}
	w.in.items = nil
	w.in.endLocked(ErrClosed)
}

// counterLocked takes the answer to an addition, by its id, or to a request for the counter,
// in their order.
func (c *Client) counterLocked(m *protocol.CounterResponse) {
	k := c.pendingLocked(m.RequestID, protocol.KindCounterSync, protocol.KindCounterRequest)
	if m.RequestID == "" {
		k = c.oldestLocked(c.conn, protocol.KindCounterRequest.String(), m.Name)
	}
	if k != nil {
		c.settleLocked(k, m, nil)
	}
	if m.Value != nil && len(m.State.Positive)+len(m.State.Negative) == 0 && *m.Value != 0 {
		return // the server could not read the counter after the addition
	}
	c.showCounterLocked(m.Name, m.State)
}

// showCounterLocked shows a total to those who watch it. An answer and what everybody is shown
// are read at different times and may come in the other order; the totals of each writer only
// grow, so the greater ones are the later ones.
func (c *Client) showCounterLocked(name string, state protocol.CounterState) {
	if len(c.watches[name]) == 0 {
		return
	}
	seen := c.conn.counters[name]
	seen.Positive, seen.Negative = greater(seen.Positive, state.Positive), greater(seen.Negative, state.Negative)
	c.conn.counters[name] = seen
	total := sum(seen)
	for w := range c.watches[name] {
		if !w.shown || w.latest != total {
			w.shown, w.latest = true, total
			w.in.items = w.in.items[:0]
			w.in.putLocked(total)
		}
	}
}

// greater raises totals to others; nil is for none.
func greater(totals, others map[string]float64) map[string]float64 {
	if totals == nil {
		totals = make(map[string]float64, len(others))
	}
	for writer, total := range others {
		totals[writer] = max(totals[writer], total)
	}
	return totals
}

// sum is the total of a counter.
func sum(s protocol.CounterState) (total float64) {
	// In order, because sums of fractions depend on it.
	for _, writer := range slices.Sorted(maps.Keys(s.Positive)) {
		total += s.Positive[writer]
	}
	for _, writer := range slices.Sorted(maps.Keys(s.Negative)) {
		total -= s.Negative[writer]
	}
	return total
}
