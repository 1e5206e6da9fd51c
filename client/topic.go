package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// Message is one message of a topic, or the notice that some may be missing.
type Message struct {
	// Gap: messages may have been missed here, because the connection ended or the consumer
	// fell behind. The other fields are empty.
	Gap  bool
	Data Value
	// Publisher is the publisher's user or connection as the server names it, and Time the
	// server's clock when it was published.
	Publisher string
	Time      time.Time
}

// Publish publishes a message; see Encode for what data may be. It returns when the server
// has taken it. Subscribers get it at most once, and this Client itself never. ErrUnknown: it
// may have been taken; it is not repeated, because it would come twice.
func (c *Client) Publish(ctx context.Context, topic string, data any) error {
	value, err := Encode(data)
	if err != nil {
		return err
	}
	k := c.newCall(protocol.KindTopicPub, topic, func(string) protocol.Message {
		return &protocol.TopicPub{Topic: topic, Data: msgp.Raw(value)}
	})
	k.changes, k.barrier = true, true
	if _, err := c.do(ctx, k); err != nil {
		return fmt.Errorf("publish to topic %q: %w", topic, err)
	}
	return nil
}

// Subscription is the messages of a topic from the time of Subscribe.
type Subscription struct {
	client *Client
	topic  string
	limit  int
	in     inbox[Message]
}

// Subscribe returns when the server sends what is published from now on, over new connections
// too. Messages of this Client itself are not shown. Close it when it is not needed any more.
func (c *Client) Subscribe(ctx context.Context, topic string) (*Subscription, error) {
	s := &Subscription{client: c, topic: topic, limit: c.cfg.StreamBuffer, in: newInbox[Message]()}
	c.mu.Lock()
	if err := c.final; err != nil {
		c.mu.Unlock()
		return nil, err
	}
	if c.topics[topic] == nil {
		c.topics[topic] = map[*Subscription]struct{}{}
	}
	c.topics[topic][s] = struct{}{}
	c.mu.Unlock()
	k := c.newCall(protocol.KindTopicSub, topic, func(string) protocol.Message { return &protocol.TopicSub{Topic: topic} })
	k.again, k.barrier = true, true
	if _, err := c.do(ctx, k); err != nil {
		s.Close()
		return nil, fmt.Errorf("subscribe to topic %q: %w", topic, err)
	}
	return s, nil
}

// Next waits for the next message. When the subscription has ended the error says why:
// ErrClosed, or ErrRefused if the server did not allow it on a new connection.
func (s *Subscription) Next(ctx context.Context) (Message, error) {
	return s.in.next(ctx, s.client, nil)
}

// All iterates over the messages until the subscription or ctx ends; the error that ended it
// comes last.
func (s *Subscription) All(ctx context.Context) iter.Seq2[Message, error] { return all(ctx, s.Next) }

// Close ends the subscription. Calling it again does nothing.
func (s *Subscription) Close() {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.topics[s.topic][s]; open {
		if delete(c.topics[s.topic], s); len(c.topics[s.topic]) == 0 {
			delete(c.topics, s.topic)
			c.unresumeLocked(protocol.KindTopicSub, s.topic)
			if c.conn != nil {
				c.conn.postLocked(&protocol.TopicUnsub{Topic: s.topic})
			}
		}
	}
	s.in.items = nil
	s.in.endLocked(ErrClosed)
}

// publishedLocked takes a message.
func (c *Client) publishedLocked(m *protocol.TopicMessage) {
	for s := range c.topics[m.Topic] {
		if len(s.in.items) >= s.limit {
			s.gapLocked()
			continue
		}
		s.in.putLocked(Message{Data: Value(m.Data), Publisher: m.PublisherID, Time: time.UnixMilli(m.Timestamp)})
	}
}

// gapLocked says that messages may be missing, once until it was read.
func (s *Subscription) gapLocked() {
	if n := len(s.in.items); n == 0 || !s.in.items[n-1].Gap {
		s.in.putLocked(Message{Gap: true})
	}
}
