package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/protocol"
)

// subscribed opens a subscription to the topic t.
func subscribed(t *testing.T, c *client.Client, p *peer) *client.Subscription {
	t.Helper()
	var sub *client.Subscription
	done := begin(func() (err error) { sub, err = c.Subscribe(within(t), "t"); return err })
	next[*protocol.TopicSub](p)
	if p.held.Load() {
		p.pong(next[*protocol.Ping](p))
	}
	require.NoError(t, await(t, done))
	return sub
}

func requireGap(t *testing.T, sub *client.Subscription) {
	t.Helper()
	m, err := sub.Next(within(t))
	require.NoError(t, err)
	require.True(t, m.Gap)
}

func TestASubscriptionThatIsNotServedIsAskedForAgain(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	sub := subscribed(t, c, p)
	f.held.Store(true)
	p.cut()
	p = f.accept()
	next[*protocol.TopicSub](p)
	p.complain(protocol.CodeUnavailable, "type", "TOPIC_SUB", "topic", "t")
	p.pong(next[*protocol.Ping](p))
	next[*protocol.TopicSub](p)
	next[*protocol.Ping](p)
	p.cut() // and over the next connection, once
	p = f.accept()
	next[*protocol.TopicSub](p)
	p.pong(next[*protocol.Ping](p))
	p.send(&protocol.TopicMessage{Topic: "t", Data: msgp.AppendInt(nil, 7)})
	requireGap(t, sub)
	m, err := sub.Next(within(t))
	require.NoError(t, err)
	require.Equal(t, "7", m.Data.String())
	done := begin(func() error { return c.Publish(within(t), "t", nil) })
	next[*protocol.TopicPub](p)
	p.pong(next[*protocol.Ping](p))
	require.NoError(t, await(t, done))
	sub.Close()
	next[*protocol.TopicUnsub](p)
}

func TestARefusalEndsASubscription(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	sub := subscribed(t, c, p)
	f.held.Store(true)
	p.cut()
	p = f.accept()
	next[*protocol.TopicSub](p)
	p.complain(protocol.CodeForbidden, "type", "TOPIC_SUB", "topic", "t")
	next[*protocol.Ping](p)
	requireGap(t, sub)
	_, err := sub.Next(within(t))
	require.ErrorIs(t, err, client.ErrRefused)
	sub.Close()
	subscribed(t, c, p).Close() // of its own
	next[*protocol.TopicUnsub](p)
}

// watching opens a watch of the counter n, whose total is shown.
func watching(t *testing.T, c *client.Client, p *peer, total float64) *client.CounterWatch {
	t.Helper()
	var w *client.CounterWatch
	done := begin(func() (err error) { w, err = c.Counter("n").Watch(within(t)); return err })
	next[*protocol.CounterRequest](p)
	p.total(total)
	require.NoError(t, await(t, done))
	requireTotal(t, w, total)
	return w
}

// total answers a request for the counter n.
func (p *peer) total(n float64) {
	p.send(&protocol.CounterResponse{Name: "n", State: protocol.CounterState{Positive: map[string]float64{"x": n}}})
}

func requireTotal(t *testing.T, w *client.CounterWatch, want float64) {
	t.Helper()
	total, err := w.Next(within(t))
	require.NoError(t, err)
	require.InDelta(t, want, total, 0)
}

func TestAWatchThatIsNotServedIsAskedForAgain(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	w := watching(t, c, p, 1)
	p.cut()
	p = f.accept()
	next[*protocol.CounterRequest](p)
	p.complain(protocol.CodeUnavailable, "type", "COUNTER_REQUEST", "name", "n")
	next[*protocol.CounterRequest](p)
	p.cut()
	p = f.accept()
	next[*protocol.CounterRequest](p)
	p.total(5)
	requireTotal(t, w, 5)
	require.NoError(t, c.Publish(within(t), "t", nil))
	next[*protocol.TopicPub](p) // and it was asked for once
}

func TestARefusalEndsAWatch(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	w := watching(t, c, p, 1)
	p.cut()
	p = f.accept()
	next[*protocol.CounterRequest](p)
	p.complain(protocol.CodeForbidden, "type", "COUNTER_REQUEST", "name", "n")
	_, err := w.Next(within(t))
	require.ErrorIs(t, err, client.ErrRefused)
	w.Close()
	watching(t, c, p, 2).Close() // of its own
}
