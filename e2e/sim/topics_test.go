package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/partitions/topics"
)

const (
	// topicCount topics are published to, by publishers connections.
	topicCount, publishers = 3, 4
	// roundSize is how many messages of each topic must all arrive in quiet time: a node
	// that leaves out one in a hundred is noticed.
	roundSize = 120
)

// told is one message as a subscriber or its publisher knows it.
type told struct {
	topic, publisher string
	number           int
}

func (m told) String() string { return fmt.Sprintf("%s/%s/%d", m.topic, m.publisher, m.number) }

// gazette is everything that was published and delivered. It is safe for concurrent use.
type gazette struct {
	mu   sync.Mutex
	sent map[told]string // the connection that published it
	// got is what each life of a node gave to the subscribers of a topic, in order.
	got map[*life]map[string][]told
	// newest is the last message of each publisher and topic that a life got.
	newest map[*life]map[told]int
	// rounds counts the rounds of quiet time.
	rounds int
}

func newGazette() *gazette {
	return &gazette{sent: map[told]string{}, got: map[*life]map[string][]told{}, newest: map[*life]map[told]int{}}
}

// publish sends a message through a node.
func (w *world) publish(l *life, m told) {
	w.gazette.mu.Lock()
	w.gazette.sent[m] = "conn-" + m.publisher
	w.gazette.mu.Unlock()
	// Where there is no room the message is lost, which is allowed.
	l.node.Router().Publish(&topics.Message{
		Topic: m.topic, Data: fmt.Append(nil, m.number), Publisher: m.publisher, Origin: "conn-" + m.publisher,
	})
}

// receive is the subscribers of a life: each message was published, comes once, behind
// what its publisher published before, and says from which connection it is, which gets
// no echo.
func (w *world) receive(l *life) func(*topics.Message) {
	return func(msg *topics.Message) {
		m := told{topic: msg.Topic, publisher: msg.Publisher}
		by := m
		_, err := fmt.Sscan(string(msg.Data), &m.number)
		g := w.gazette
		g.mu.Lock()
		origin, known := g.sent[m]
		if g.got[l] == nil {
			g.got[l], g.newest[l] = map[string][]told{}, map[told]int{}
		}
		last := g.newest[l][by]
		g.newest[l][by] = m.number
		g.got[l][m.topic] = append(g.got[l][m.topic], m)
		g.mu.Unlock()
		switch {
		case err != nil || !known:
			w.problem("%s delivered %s, which nobody published: %v", l.machine.name, m, err)
		case origin != msg.Origin:
			w.problem("%s delivered %s as if %s had published it", l.machine.name, m, msg.Origin)
		case m.number <= last:
			w.problem("%s delivered %s after number %d", l.machine.name, m, last)
		}
	}
}

// startPublishers starts connections that publish until stop is closed.
func (w *world) startPublishers() {
	for range publishers {
		w.clients++
		c := &client{w: w, name: fmt.Sprintf("p%d", w.clients), rng: rand.New(rand.NewPCG(w.seed, uint64(2000+w.clients)))}
		w.busy.Go(c.proclaim)
	}
}

// proclaim publishes a few messages at a time. A new connection is a new publisher.
func (c *client) proclaim() {
	connection := 0
	for {
		select {
		case <-c.w.stop:
			return
		case <-time.After(c.rest(4)):
		}
		if c.life == nil || c.life.dead.Load() || c.rng.IntN(20) == 0 {
			c.reconnect()
			connection++
		}
		if c.life == nil {
			continue
		}
		topic, publisher := fmt.Sprintf("t%d", c.rng.IntN(topicCount)), fmt.Sprintf("%s-%d", c.name, connection)
		for range 1 + c.rng.IntN(3) {
			c.next++
			c.w.publish(c.life, told{topic, publisher, c.next})
			c.w.counts.add("messages", 1)
		}
	}
}

// checkTopics holds that all nodes delivered parts of one order, and that in quiet time
// nothing is missing.
func (w *world) checkTopics() {
	w.eventually(60*time.Second, "all messages of a quiet moment on all nodes", w.quietRound)
	g := w.gazette
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range topicCount {
		topic := fmt.Sprintf("t%d", i)
		var orders [][]told
		for _, l := range slices.Collect(maps.Keys(g.got)) {
			orders = append(orders, g.got[l][topic])
		}
		if m, ok := oneOrder(orders); !ok {
			w.problem("there is no order of topic %s that all nodes agree with, around %s", topic, m)
		}
	}
}

// delivered counts the messages that subscribers got.
func (g *gazette) delivered() (n int) {
	for _, byTopic := range g.got {
		for _, list := range byTopic {
			n += len(list)
		}
	}
	return n
}

// quietRound publishes to all topics through all nodes, and reports what some node lacks
// after a while.
func (w *world) quietRound() error {
	w.gazette.mu.Lock()
	w.gazette.rounds++
	round := w.gazette.rounds
	w.gazette.mu.Unlock()
	lives := w.running()
	var all []told
	for n := range roundSize {
		for i := range topicCount {
			at := n % len(lives)
			m := told{fmt.Sprintf("t%d", i), fmt.Sprintf("round%d-%d", round, at), n + 1}
			w.publish(lives[at], m)
			all = append(all, m)
		}
	}
	for range 20 {
		if w.missing(lives, all) == nil {
			break
		}
		pause(100 * time.Millisecond)
	}
	return w.missing(lives, all)
}

// missing says which message a life did not get.
func (w *world) missing(lives []*life, all []told) error {
	w.gazette.mu.Lock()
	defer w.gazette.mu.Unlock()
	for _, l := range lives {
		got := map[told]bool{}
		for _, list := range w.gazette.got[l] {
			for _, m := range list {
				got[m] = true
			}
		}
		for _, m := range all {
			if !got[m] {
				return fmt.Errorf("%s did not get %s", l.machine.name, m)
			}
		}
	}
	return nil
}

// oneOrder reports whether there is one order that all lists are parts of; otherwise it
// names an element of a contradiction.
func oneOrder[T comparable](lists [][]T) (around T, ok bool) {
	before := map[T]int{} // how many elements must come before
	next := map[T][]T{}
	for _, list := range lists {
		for i, m := range list {
			before[m] += min(i, 1)
			if i > 0 {
				next[list[i-1]] = append(next[list[i-1]], m)
			}
		}
	}
	var free []T
	for m, n := range before {
		if n == 0 {
			free = append(free, m)
		}
	}
	for len(free) > 0 {
		m := free[len(free)-1]
		free = free[:len(free)-1]
		delete(before, m)
		for _, after := range next[m] {
			if before[after]--; before[after] == 0 {
				free = append(free, after)
			}
		}
	}
	for m := range before {
		return m, false
	}
	return around, true
}
