package protocol

import "github.com/tinylib/msgp/msgp"

// TopicSub is TOPIC_SUB. It has no answer.
type TopicSub struct {
	Topic string `wire:"topic"`
}

// Kind implements Message.
func (*TopicSub) Kind() Kind { return KindTopicSub }

// Correlation is the topic.
func (m *TopicSub) Correlation() string { return m.Topic }

// TopicUnsub is TOPIC_UNSUB. It has no answer.
type TopicUnsub struct {
	Topic string `wire:"topic"`
}

// Kind implements Message.
func (*TopicUnsub) Kind() Kind { return KindTopicUnsub }

// Correlation is the topic.
func (m *TopicUnsub) Correlation() string { return m.Topic }

// TopicPub is TOPIC_PUB. It has no answer.
type TopicPub struct {
	Topic string   `wire:"topic"`
	Data  msgp.Raw `wire:"data"`
}

// Kind implements Message.
func (*TopicPub) Kind() Kind { return KindTopicPub }

// Correlation is the topic.
func (m *TopicPub) Correlation() string { return m.Topic }

// TopicMessage is TOPIC_MESSAGE: a published message, for the other subscribers.
type TopicMessage struct {
	Topic string   `wire:"topic"`
	Data  msgp.Raw `wire:"data"`
	// PublisherID is the publisher's user or connection id.
	PublisherID string `wire:"publisherId,optional"`
	// Timestamp is the server's clock at publishing, in milliseconds since 1970.
	Timestamp int64 `wire:"timestamp"`
}

// Kind implements Message.
func (*TopicMessage) Kind() Kind { return KindTopicMessage }
