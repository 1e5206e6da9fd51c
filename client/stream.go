package client

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/protocol"
)

// inbox is what waits for the consumer of a stream. Its fields are protected by Client.mu,
// but for wake.
type inbox[T any] struct {
	items []T
	// err ends the stream when the items are consumed.
	err  error
	wake chan struct{}
}

func newInbox[T any]() inbox[T] { return inbox[T]{wake: make(chan struct{}, 1)} }

func (b *inbox[T]) putLocked(item T) {
	b.items = append(b.items, item)
	b.wakeUp()
}

func (b *inbox[T]) endLocked(err error) {
	if b.err == nil {
		b.err = err
	}
	b.wakeUp()
}

func (b *inbox[T]) wakeUp() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// next waits for an item. lack, if it is set, is called with Client.mu held when there is
// none.
func (b *inbox[T]) next(ctx context.Context, c *Client, lack func()) (item T, err error) {
	for {
		c.mu.Lock()
		if len(b.items) > 0 {
			item = b.items[0]
			if b.items = b.items[1:]; len(b.items) > 0 || b.err != nil {
				b.wakeUp() // for another consumer
			}
			c.mu.Unlock()
			return item, nil
		}
		if err = b.err; err != nil {
			b.wakeUp()
			c.mu.Unlock()
			return item, err
		}
		if lack != nil {
			lack()
		}
		c.mu.Unlock()
		select {
		case <-b.wake:
		case <-ctx.Done():
			return item, ctx.Err()
		}
	}
}

// resumeStreamsLocked subscribes anew on a new connection.
func (c *Client) resumeStreamsLocked(cn *conn) {
	for _, f := range c.follows {
		f.subscribeLocked(cn)
	}
	for topic := range c.topics {
		c.resumeLocked(protocol.KindTopicSub, topic, &protocol.TopicSub{Topic: topic}, true)
	}
	for name := range c.watches {
		c.resumeLocked(protocol.KindCounterRequest, name, &protocol.CounterRequest{Name: name}, false)
	}
}

// resumeLocked subscribes to a topic or a counter anew. It is a call like that of the caller
// who subscribed, so it is repeated as long as the server cannot serve it; a refusal ends the
// streams. One that an earlier connection left unanswered is sent on this one anyway.
func (c *Client) resumeLocked(kind protocol.Kind, name string, m protocol.Message, barrier bool) {
	if c.resumptionLocked(kind, name) != nil {
		return
	}
	k := c.newCall(kind, name, func(string) protocol.Message { return m })
	k.again, k.barrier, k.resumes = true, barrier, true
	c.calls[k.id] = k
	c.enqueueLocked(k)
}

// resumptionLocked is the call that subscribes anew and is not answered yet, nil without one.
func (c *Client) resumptionLocked(kind protocol.Kind, name string) *call {
	for _, k := range c.calls {
		if k.resumes && k.kind == kind && k.name == name {
			return k
		}
	}
	return nil
}

// unresumeLocked ends the call that subscribes anew, because nobody wants it any more.
func (c *Client) unresumeLocked(kind protocol.Kind, name string) {
	if k := c.resumptionLocked(kind, name); k != nil {
		c.settleLocked(k, nil, nil)
	}
}

// resumedLocked takes the end of a call that subscribed anew. An error ends the streams: the
// server will not serve them again.
func (c *Client) resumedLocked(k *call) {
	if k.err == nil {
		return
	}
	if k.kind == protocol.KindTopicSub {
		for s := range c.topics[k.name] {
			s.in.endLocked(fmt.Errorf("subscribe to topic %q again: %w", k.name, k.err))
		}
		delete(c.topics, k.name)
		return
	}
	for w := range c.watches[k.name] {
		w.in.endLocked(fmt.Errorf("watch counter %q again: %w", k.name, k.err))
	}
	delete(c.watches, k.name)
}

// interruptStreamsLocked tells streams that something may be missed from here on.
func (c *Client) interruptStreamsLocked() {
	for _, subs := range c.topics {
		for s := range subs {
			s.gapLocked()
		}
	}
}

// endStreamsLocked ends all streams.
func (c *Client) endStreamsLocked(err error) {
	for _, f := range c.follows {
		f.in.endLocked(err)
	}
	for _, subs := range c.topics {
		for s := range subs {
			s.in.endLocked(err)
		}
	}
	for _, watches := range c.watches {
		for w := range watches {
			w.in.endLocked(err)
		}
	}
	clear(c.follows)
	clear(c.topics)
	clear(c.watches)
}
