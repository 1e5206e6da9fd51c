package ws

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/quorate/quorate/partitions/topics"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
	"github.com/quorate/quorate/transport/policy"
)

// topicIndex holds the subscribers of this node. The zero value is ready.
type topicIndex struct {
	// mu protects subs and the topics of all connections.
	mu   sync.RWMutex
	subs map[string]map[*conn]struct{}
}

// receiveTopicSub handles TOPIC_SUB. It has no answer but a refusal.
func (c *conn) receiveTopicSub(m *protocol.TopicSub) {
	r := judge.Name("topic", m.Topic)
	if !r.Refused() && !c.srv.topics.add(c, m.Topic, c.srv.cfg.MaxTopics) {
		c.srv.metrics.limit("topics")
		r = judge.Refusal{Code: protocol.CodeOverloaded, Reason: "too many topics on this connection"}
	}
	if r.Refused() {
		c.reply(failureOf(m, r.Code, r.Reason))
	}
}

// receiveTopicPub handles TOPIC_PUB. It has no answer but a refusal: nobody tells how many
// the message reached.
func (c *conn) receiveTopicPub(m *protocol.TopicPub) {
	r := judge.Name("topic", m.Topic)
	if limit := c.srv.cfg.MaxValueBytes; !r.Refused() && len(m.Data) > limit {
		r = judge.Refusal{Code: protocol.CodeTooLarge, Reason: fmt.Sprintf("data is larger than %d bytes", limit)}
	}
	// The frame around the data may be many times as large, and the message may wait for long.
	data := bytes.Clone(m.Data)
	if !r.Refused() && !c.backend.Publish(&topics.Message{Topic: m.Topic, Data: data, Publisher: c.publisher(), Origin: c.id}) {
		c.srv.metrics.limit("publish")
		r = judge.Refusal{Code: protocol.CodeOverloaded, Reason: "too many messages wait, this one was dropped"}
	}
	if r.Refused() {
		c.reply(failureOf(m, r.Code, r.Reason))
	}
}

// publisher names the client to subscribers: its user, or the connection.
func (c *conn) publisher() string {
	if c.auth.subject != "" {
		return c.auth.subject
	}
	return c.id
}

// add subscribes a connection, unless it has limit topics already.
func (t *topicIndex) add(c *conn, topic string, limit int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, already := c.topics[topic]; already {
		return true
	}
	if len(c.topics) >= limit {
		return false
	}
	if c.topics == nil {
		c.topics = map[string]struct{}{}
	}
	c.topics[topic] = struct{}{}
	if t.subs == nil {
		t.subs = map[string]map[*conn]struct{}{}
	}
	if t.subs[topic] == nil {
		t.subs[topic] = map[*conn]struct{}{}
	}
	t.subs[topic][c] = struct{}{}
	return true
}

// remove ends a subscription.
func (t *topicIndex) remove(c *conn, topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeLocked(c, topic)
}

func (t *topicIndex) removeLocked(c *conn, topic string) {
	delete(c.topics, topic)
	if delete(t.subs[topic], c); len(t.subs[topic]) == 0 {
		delete(t.subs, topic)
	}
}

// removeAll ends the subscriptions of a connection that closes.
func (t *topicIndex) removeAll(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for topic := range c.topics {
		t.removeLocked(c, topic)
	}
}

// deliverTopic shows a message to the subscribers of this node, but not to the connection
// that published it. One that has no room for it misses it.
func (s *Server) deliverTopic(m *topics.Message) {
	s.topics.mu.RLock()
	defer s.topics.mu.RUnlock()
	subscribers := s.topics.subs[m.Topic]
	if len(subscribers) == 0 {
		return
	}
	frame, err := protocol.Append(nil, &protocol.TopicMessage{Topic: m.Topic, Data: m.Data, PublisherID: m.Publisher, Timestamp: m.Millis})
	if err != nil {
		s.log.Error("encode message", "err", err)
		return
	}
	for c := range subscribers {
		if c.id == m.Origin || !c.may(policy.Read, policy.Topic, m.Topic) {
			continue
		}
		if c.out.message(frame) != nil {
			s.metrics.limit("message_lost")
		}
	}
}
