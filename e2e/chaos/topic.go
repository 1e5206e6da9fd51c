package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/e2e/chaos/check"
	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// topics publishes while a client on each node listens. Half of the publishers listen too:
// they must not hear themselves.
type topics struct {
	*load
	topic     string
	listeners []*listener
}

func newTopics(l *load) workload { return &topics{load: l, topic: l.called("news")} }

func (w *topics) start(busy, watching context.Context) {
	for _, n := range w.round.cluster.Nodes() {
		v := newListener(w, n)
		w.listeners = append(w.listeners, v)
		w.round.watching.Go(func() { v.run(watching) })
	}
	subscriber := w.caller(nil)
	w.round.watching.Go(func() { w.subscribe(watching, subscriber) })
	w.through(busy, func(ctx context.Context, c *caller, api *client.Client) {
		c.session++ // which connection a message took is not known, so they have no order
		op := c.begin(check.Publish, w.topic, c.value())
		if err := api.Publish(ctx, w.topic, op.Value); err != nil {
			c.finish(op, err)
			return
		}
		c.finish(op, client.ErrUnknown) // nobody is told what becomes of it
	})
	for i := range 3 {
		var publisher *caller
		listening := -1
		w.each(busy, 1, func(ctx context.Context, c *caller) {
			if publisher == nil {
				publisher = c
				c.push = w.listenerOf(c)
			}
			if !c.connect(ctx) {
				return
			}
			if i == 0 && listening != c.session {
				listening = c.session
				if c.conn.Send(ctx, &protocol.TopicSub{Topic: w.topic}) != nil {
					c.hangUp()
					return
				}
			}
			w.publish(ctx, c)
		})
	}
}

// subscribe listens over the Go client, which says where it may have missed something.
func (w *topics) subscribe(ctx context.Context, c *caller) {
	api, err := client.Open(ctx, client.Config{Seeds: c.seeds(), ClientID: c.name})
	if err != nil {
		return // watching has ended
	}
	defer api.Close()
	stream, err := api.Subscribe(ctx, w.topic)
	for ctx.Err() == nil && err != nil {
		c.rest(ctx, time.Second)
		stream, err = api.Subscribe(ctx, w.topic)
	}
	if err != nil {
		return
	}
	defer stream.Close()
	for m, err := range stream.All(ctx) {
		switch {
		case err != nil && ctx.Err() == nil:
			w.round.problem("topic: the Go client's subscription ended: %v", err)
			return
		case m.Gap:
			c.session++
		case err == nil:
			op := c.begin(check.Deliver, w.topic, text(m.Data))
			op.Outcome, op.Return, op.Session, op.Node = check.OK, op.Call, c.session, check.AnyNode
			w.note(op)
		}
	}
}

// publish publishes one message; nobody says what becomes of it.
func (w *topics) publish(ctx context.Context, c *caller) (value string) {
	op := c.begin(check.Publish, w.topic, c.value())
	op.Outcome = check.Unknown
	if err := c.conn.Send(ctx, &protocol.TopicPub{Topic: w.topic, Data: msgp.AppendString(nil, op.Value)}); err != nil {
		c.end(op)
		c.hangUp()
		return op.Value
	}
	c.end(op)
	return op.Value
}

// listenerOf notes what the client hears.
func (w *topics) listenerOf(c *caller) func(m protocol.Message) {
	// The session is that of the connection which calls: a client has one at a time, and
	// closes it before the next.
	return func(m protocol.Message) {
		if m, ok := m.(*protocol.TopicMessage); ok {
			op := c.begin(check.Deliver, m.Topic, harness.TextOf(m.Data))
			op.Outcome, op.Return, op.Session = check.OK, op.Call, c.session
			if c.bound != nil {
				op.Node = c.bound.Name
			}
			w.note(op)
		}
	}
}

// quiet publishes bursts on every node, with nothing in the way, until one has come to all
// listeners in full. Leaders may still move after the faults, and what is on its way
// then can be lost, so that the first need not be the one.
func (w *topics) quiet(ctx context.Context) error {
	const bursts = 6
	var err error
	for range bursts {
		if err = w.burst(ctx); err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
	}
	w.round.problem("topic: %d bursts of messages did not come in full: %v", bursts, err)
	return nil
}

func (w *topics) burst(ctx context.Context) error {
	const messages = 40
	var values []string
	for _, n := range w.round.cluster.Nodes() {
		c := w.caller(n)
		if err := until(ctx, settleTime, func() error {
			if !c.connect(ctx) {
				return fmt.Errorf("%s takes no connection", n.Name)
			}
			return nil
		}); err != nil {
			return err
		}
		for range messages {
			if c.conn == nil {
				return fmt.Errorf("%s ended the connection of a publisher", n.Name)
			}
			values = append(values, w.publish(ctx, c))
			c.rest(ctx, 2*time.Millisecond) // a listener's queue on its node is bounded
		}
		defer c.hangUp()
	}
	for _, v := range w.listeners {
		if err := until(ctx, burstTime, func() error { return v.has(values) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *topics) judge(ops []check.Op) []string { return check.Topics(ops) }

// burstTime is how long a burst may take to come in.
const burstTime = 15 * time.Second

// listener listens on one node, over new connections when it must.
type listener struct {
	topics *topics
	caller *caller

	// mu protects heard.
	mu    sync.Mutex
	heard map[string]bool
}

func newListener(w *topics, n *harness.Node) *listener {
	v := &listener{topics: w, caller: w.caller(n), heard: make(map[string]bool)}
	note := w.listenerOf(v.caller)
	v.caller.push = func(m protocol.Message) {
		note(m)
		if m, ok := m.(*protocol.TopicMessage); ok {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.heard[harness.TextOf(m.Data)] = true
		}
	}
	return v
}

func (v *listener) run(ctx context.Context) {
	defer v.caller.hangUp()
	for ctx.Err() == nil {
		if !v.caller.connect(ctx) {
			continue
		}
		if v.caller.conn.Send(ctx, &protocol.TopicSub{Topic: v.topics.topic}) != nil {
			v.caller.hangUp()
			continue
		}
		v.caller.stay(ctx)
	}
}

// has says what the listener has not heard.
func (v *listener) has(values []string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	missing := 0
	for _, value := range values {
		if !v.heard[value] {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("the listener on %s lacks %d of %d", v.caller.bound.Name, missing, len(values))
	}
	return nil
}
