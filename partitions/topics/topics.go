// Package topics carries published messages to the subscribers of all nodes. They are not
// stored. The leader of a topic's group is its sequencer: it gives each message a place,
// by the term of its leadership and a number in it, and sends it to every node, to each in
// order. A node passes on only what is behind the place that it saw last, so that all
// subscribers see parts of one order, also while an old sequencer does not know yet that
// there is a new one. A node numbers what it brings to a sequencer, and names the term in
// which it believes it to lead: a request that comes when the node has given it up and gone
// on is dropped, so that what is published on one node keeps its order.
//
// A message is delivered at most once. It is lost where a queue is full, where a node
// cannot be reached, and when a sequencer ends: what it was sent and had not passed on,
// and what it passes on after its successor has begun.
package topics

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Message is a published message.
type Message struct {
	Topic string
	// Data is one MsgPack value; empty is nil.
	Data []byte
	// Publisher is the user or connection that published, as subscribers see it. Origin
	// names the connection, which gets no echo.
	Publisher, Origin string
	// Millis is the sequencer's wall clock.
	Millis int64

	group uint32
	place place
}

// place is where a message stands among those of its group.
type place struct{ term, number uint64 }

func (p place) behind(other place) bool {
	return p.term > other.term || p.term == other.term && p.number > other.number
}

// Config tunes a Service. Use DefaultConfig and set Self.
type Config struct {
	// Self is the id of this node, Run that of this run of it. Both are required.
	Self, Run string
	// QueueMessages and QueueBytes bound what waits for a sequencer, and for a node.
	QueueMessages, QueueBytes int
	// BatchMessages and BatchBytes bound what travels together.
	BatchMessages, BatchBytes int
	// Patience is how long a message waits for a sequencer.
	Patience time.Duration
	// CallTimeout bounds one request to a node, RetryPause is before the next.
	CallTimeout, RetryPause time.Duration
}

// DefaultConfig is the configuration for production, without Self and Run.
func DefaultConfig() Config {
	return Config{
		QueueMessages: 8192, QueueBytes: 16 << 20, BatchMessages: 256, BatchBytes: 2 << 20,
		Patience: 5 * time.Second, CallTimeout: 3 * time.Second, RetryPause: 20 * time.Millisecond,
	}
}

// Deps are the collaborators of a Service. All are required.
type Deps struct {
	Logger hclog.Logger
	// GroupOf is the group of a topic, 0 before the node belongs to a cluster; Leader is a
	// group's best known leader, empty if unknown, with its term.
	GroupOf func(topic string) uint32
	Leader  func(group uint32) (node string, term uint64)
	// Term is the term in which this node leads a group, if it does.
	Term func(group uint32) (term uint64, leads bool)
	// Nodes lists the nodes that get messages.
	Nodes func() []string
	// Publish and Deliver bring a body to HandlePublish and HandleDeliver of a node.
	Publish, Deliver func(ctx context.Context, node string, body []byte) ([]byte, error)
	// NotSent reports whether an error of Publish promises that nothing was handled.
	NotSent func(err error) bool
	// Now is the wall clock in milliseconds since 1970.
	Now func() int64
}

// Service is the topics as one node sees them. It is safe for concurrent use.
type Service struct {
	cfg  Config
	deps Deps
	// sink takes the messages for this node's subscribers.
	sink atomic.Pointer[func(*Message)]
	lost atomic.Uint64

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	// mu protects the fields below.
	mu     sync.Mutex
	closed bool
	// outboxes hold what waits for the sequencer of a group, fans what waits for a node.
	outboxes map[uint32]*outbox
	fans     map[string]*queue
	// sequences are those that this node gives out, seen the last places per group.
	sequences map[uint32]*sequence
	seen      map[uint32]place
}

// outbox is what waits for the sequencer of a group. Only the sending uses the numbers.
type outbox struct {
	queue
	// number is that of the last batch, term the greatest in which one was brought.
	number, term uint64
}

// sequence gives out places. Its lock also keeps the order in which they are queued.
type sequence struct {
	mu   sync.Mutex
	last place
	// taken are the numbers of the last batches of this term, by the runs of nodes.
	taken map[string]uint64
}

// New returns a Service. Close ends its work.
func New(cfg Config, deps Deps) *Service {
	s := &Service{
		cfg: cfg, deps: deps, outboxes: map[uint32]*outbox{}, fans: map[string]*queue{},
		sequences: map[uint32]*sequence{}, seen: map[uint32]place{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close ends the work and waits for it. What still waits is lost.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
}

// Lost is how many messages this node had no room or no way for.
func (s *Service) Lost() uint64 { return s.lost.Load() }

// Receive has fn take the messages for this node's subscribers, in order per topic. fn
// must neither block nor modify a message. The last call counts.
func (s *Service) Receive(fn func(*Message)) { s.sink.Store(&fn) }

// Publish sends a message on its way and reports whether there was room. Messages that are
// published one after the other on one node keep their order.
func (s *Service) Publish(m *Message) bool {
	group := s.deps.GroupOf(m.Topic)
	if group == 0 {
		s.lost.Add(1)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outboxes[group]
	if o == nil {
		o = &outbox{queue: queue{service: s}}
		o.send = func(batch []*Message) { s.bring(o, group, batch) }
		s.outboxes[group] = o
	}
	return o.addLocked(m)
}

// bring brings messages to the sequencer of their group, in order. It gives up those that
// have waited for too long, and those of which it is not known whether they came.
func (s *Service) bring(o *outbox, group uint32, messages []*Message) {
	o.number++
	b := &batch{group: group, run: s.cfg.Run, number: o.number, messages: messages}
	deadline := time.Now().Add(s.cfg.Patience)
	for time.Now().Before(deadline) && s.ctx.Err() == nil {
		if taken, lost := s.offer(o, b); taken || lost {
			if lost {
				s.lost.Add(uint64(len(messages)))
			}
			return
		}
		select {
		case <-time.After(s.cfg.RetryPause):
		case <-s.ctx.Done():
		}
	}
	s.lost.Add(uint64(len(messages)))
}

// offer brings messages to the sequencer once. Neither taken nor lost means that it was
// not there. What was known of a later term is not forgotten: an earlier sequencer gets
// nothing more.
func (s *Service) offer(o *outbox, b *batch) (taken, lost bool) {
	leader, term := s.deps.Leader(b.group)
	if leader == "" || term < o.term {
		return false, false
	}
	o.term, b.term = term, term
	switch leader {
	case s.cfg.Self:
		return s.sequence(b), false
	default:
		ctx, cancel := context.WithTimeout(s.ctx, s.cfg.CallTimeout)
		defer cancel()
		reply, err := s.deps.Publish(ctx, leader, encode(b))
		if err != nil {
			return false, !s.deps.NotSent(err)
		}
		return len(reply) > 0 && reply[0] == replyTaken, false
	}
}

// HandlePublish takes messages that another node brings to this one as their sequencer.
func (s *Service) HandlePublish(body []byte) ([]byte, error) {
	b, err := decode(body)
	if err != nil {
		return nil, err
	}
	if !s.sequence(b) {
		return []byte{replyNotHere}, nil
	}
	return []byte{replyTaken}, nil
}

// The replies of HandlePublish.
const (
	replyTaken   = 1
	replyNotHere = 2 // this node does not lead the group in that term
)

// sequence gives messages their places and sends them to all nodes. It returns false if
// this node is not the sequencer of the batch's term. A batch that comes after a later one
// of its node is dropped.
func (s *Service) sequence(b *batch) bool {
	s.mu.Lock()
	seq := s.sequences[b.group]
	if seq == nil {
		seq = &sequence{}
		s.sequences[b.group] = seq
	}
	s.mu.Unlock()
	seq.mu.Lock()
	defer seq.mu.Unlock()
	term, leads := s.deps.Term(b.group)
	if !leads || term != b.term {
		return false
	}
	if seq.last.term != term {
		seq.last, seq.taken = place{term: term}, map[string]uint64{}
	}
	if b.number <= seq.taken[b.run] {
		s.lost.Add(uint64(len(b.messages)))
		return true
	}
	seq.taken[b.run] = b.number
	now := s.deps.Now()
	for _, m := range b.messages {
		seq.last.number++
		m.group, m.place, m.Millis = b.group, seq.last, now
	}
	s.fanOut(b.messages)
	return true
}

// fanOut queues messages for all other nodes and hands them to this one.
func (s *Service) fanOut(messages []*Message) {
	s.mu.Lock()
	for _, node := range s.deps.Nodes() {
		if node == s.cfg.Self {
			continue
		}
		q := s.fans[node]
		if q == nil {
			q = &queue{service: s}
			q.send = func(batch []*Message) { s.deliver(node, batch) }
			s.fans[node] = q
		}
		for _, m := range messages {
			if losesSubscribers && m.place.number%100 == 99 {
				break
			}
			q.addLocked(m)
		}
	}
	s.mu.Unlock()
	s.hand(messages)
}

// deliver brings messages to a node. They are not brought again: they may have come.
func (s *Service) deliver(node string, messages []*Message) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.CallTimeout)
	defer cancel()
	if _, err := s.deps.Deliver(ctx, node, encode(&batch{messages: messages})); err != nil {
		s.lost.Add(uint64(len(messages)))
		s.deps.Logger.Debug("messages were not delivered", "node", node, "messages", len(messages), "err", err)
	}
}

// HandleDeliver takes messages for this node's subscribers from a sequencer.
func (s *Service) HandleDeliver(body []byte) ([]byte, error) {
	b, err := decode(body)
	if err != nil {
		return nil, err
	}
	s.hand(b.messages)
	return nil, nil
}

// hand gives messages to the subscribers of this node that are behind what they saw last.
// The sink is called under the lock, which keeps the order.
func (s *Service) hand(messages []*Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sink := s.sink.Load()
	for _, m := range messages {
		if !m.place.behind(s.seen[m.group]) {
			s.lost.Add(1)
			continue
		}
		s.seen[m.group] = m.place
		if sink != nil {
			(*sink)(m)
		}
	}
}
