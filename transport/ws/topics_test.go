package ws

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/partitions/topics"
	"github.com/quorate/quorate/protocol"
)

// openTopics gives the backend the real topic service of a lone node.
func (b *fakeBackend) openTopics() {
	cfg := topics.DefaultConfig()
	cfg.Self, cfg.Run = "n1", "n1/run"
	b.topics = topics.New(cfg, topics.Deps{
		GroupOf: func(string) uint32 { return 1 }, Leader: func(uint32) (string, uint64) { return "n1", 1 },
		Term:  func(uint32) (uint64, bool) { return 1, true },
		Nodes: func() []string { return []string{"n1"} }, Now: func() int64 { return testNow },
	})
}

func (b *fakeBackend) Publish(m *topics.Message) bool { return b.topics.Publish(m) }

func (b *fakeBackend) ReceiveTopics(fn func(*topics.Message)) { b.topics.Receive(fn) }

func publish(topic string, i int) *protocol.TopicPub {
	return &protocol.TopicPub{Topic: topic, Data: msgp.AppendInt(nil, i)}
}

func TestMessagesReachTheOtherSubscribersInOrder(t *testing.T) {
	f := start(t)
	a, b, c := f.dial(), f.dial(), f.dial()
	for _, s := range []*client{a, b} {
		s.send(&protocol.TopicSub{Topic: "ride/42"})
		s.send(&protocol.TopicSub{Topic: "ride/42"}) // twice is once
		s.silent()
	}
	for i := range 100 {
		a.send(publish("ride/42", i))
		c.send(publish("other", i))
	}
	for i := range 100 {
		m := expect[*protocol.TopicMessage](b)
		require.Equal(t, "ride/42", m.Topic)
		require.Equal(t, msgp.Raw(msgp.AppendInt(nil, i)), m.Data)
		require.Equal(t, int64(testNow), m.Timestamp)
		require.NotEmpty(t, m.PublisherID)
	}
	a.silent() // no echo
	b.send(&protocol.TopicUnsub{Topic: "ride/42"})
	b.silent()
	a.send(publish("ride/42", 1))
	c.send(&protocol.TopicPub{Topic: "ride/42"})
	require.Empty(t, expect[*protocol.TopicMessage](a).Data, "no data is nil")
	b.silent()
	require.NoError(t, a.sock.CloseNow())
	eventually(t, func() bool {
		f.topics.mu.Lock()
		defer f.topics.mu.Unlock()
		return len(f.topics.subs) == 0
	}, "a connection that is gone subscribes to nothing")
}

func TestBadTopicsAreRefused(t *testing.T) {
	f := start(t, func(cfg *Config, _ *Deps, _ *fakeBackend) { cfg.MaxTopics, cfg.MaxValueBytes = 2, 100 })
	c := f.dial()
	for _, name := range []string{"", "a b", "*", strings.Repeat("t", 257)} {
		c.send(&protocol.TopicSub{Topic: name})
		require.Equal(t, protocol.CodeMalformed, expect[*protocol.ErrorMessage](c).Code, "%q", name)
		c.send(publish(name, 1))
		require.Equal(t, protocol.CodeMalformed, expect[*protocol.ErrorMessage](c).Code, "%q", name)
	}
	for i, name := range []string{"a", "b", "c"} {
		c.send(&protocol.TopicSub{Topic: name})
		if i == 2 {
			require.Equal(t, protocol.CodeOverloaded, expect[*protocol.ErrorMessage](c).Code)
		}
	}
	c.send(&protocol.TopicPub{Topic: "a", Data: msgp.AppendBytes(nil, make([]byte, 100))})
	require.Equal(t, protocol.CodeTooLarge, expect[*protocol.ErrorMessage](c).Code)
	c.silent()
}

func TestAMessageThatWaitsHoldsNothingButItself(t *testing.T) {
	const messages = 48
	f := start(t, func(_ *Config, _ *Deps, b *fakeBackend) {
		b.topics.Close()
		cfg := topics.DefaultConfig()
		cfg.Self, cfg.Run, cfg.Patience = "n1", "n1/run", time.Hour
		b.topics = topics.New(cfg, topics.Deps{
			GroupOf: func(string) uint32 { return 1 }, Leader: func(uint32) (string, uint64) { return "", 0 },
		})
	})
	c := f.dial()
	before := heapBytes()
	frame := padded(t, publish("t", 1))
	for range messages {
		c.sendRaw(frame)
	}
	c.silent()
	require.Less(t, heapBytes()-before, int64(messages/2<<20))
	require.Zero(t, f.backend.topics.Lost())
}

func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what a pool keeps goes with the second
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// padded is a BATCH of 1 MiB with m in it: bounds of queues count a message, not the frame that
// it came in.
func padded(t *testing.T, m protocol.Message) []byte {
	padding := encode(t, &protocol.TopicUnsub{Topic: strings.Repeat("p", 1<<20)})
	return encode(t, &protocol.Batch{Count: 2, Data: protocol.AppendBatch(protocol.AppendBatch(nil, encode(t, m)), padding)})
}
